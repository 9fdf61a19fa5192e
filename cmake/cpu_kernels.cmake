# src/cpu, compiled once per instruction set. Inline functions of the standard library that were compiled with AVX-512 must never be
# the ones the rest of the program is linked with, so each set is joined into one object (ld -r) in which every symbol but the one that
# hands out its kernel table is made local.
set(tensorlite_cpu_common parallel.cpp backend.cpp)  # compiled once, with the library's flags

file(GLOB tensorlite_cpu_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cpu/*.cpp)
foreach(name IN LISTS tensorlite_cpu_common)
  if(EXISTS ${PROJECT_SOURCE_DIR}/src/cpu/${name})
    list(REMOVE_ITEM tensorlite_cpu_sources ${PROJECT_SOURCE_DIR}/src/cpu/${name})
    target_sources(tensorlite PRIVATE ${PROJECT_SOURCE_DIR}/src/cpu/${name})
  endif()
endforeach()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(tensorlite_isas ${TENSORLITE_CPU_ISAS})
else()
  set(tensorlite_isas native)
endif()
set(tensorlite_isa_flags_v2 -march=x86-64-v2)
set(tensorlite_isa_flags_avx2 -march=x86-64-v3)
set(tensorlite_isa_flags_avx512 -march=x86-64-v4 -mprefer-vector-width=512)
set(tensorlite_isa_flags_native -march=native)

set(tensorlite_can_isolate OFF)
if(UNIX AND NOT APPLE AND NOT TENSORLITE_SANITIZE AND CMAKE_LINKER AND CMAKE_OBJCOPY)
  execute_process(COMMAND ${CMAKE_LINKER} --help OUTPUT_VARIABLE help ERROR_QUIET)
  if(help MATCHES "--force-group-allocation")
    set(tensorlite_can_isolate ON)
  endif()
endif()

function(tensorlite_add_isa isa)
  if(NOT DEFINED tensorlite_isa_flags_${isa})
    message(FATAL_ERROR "tensorlite: TENSORLITE_CPU_ISAS has '${isa}'; known are v2, avx2, avx512")
  endif()
  set(objects tensorlite_cpu_${isa})
  add_library(${objects} OBJECT ${tensorlite_cpu_sources})
  target_compile_definitions(${objects} PRIVATE TENSORLITE_BUILDING TL_CPU_ISA=${isa} Eigen=Eigen_${isa})
  target_compile_options(${objects} PRIVATE ${tensorlite_isa_flags_${isa}} -fno-math-errno -fno-trapping-math $<$<CONFIG:Release,RelWithDebInfo>:-O3>
                                            $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
  target_include_directories(${objects} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${objects} PRIVATE Eigen3::Eigen)
  tensorlite_target(${objects})

  string(TOUPPER ${isa} upper)
  target_compile_definitions(tensorlite PRIVATE TL_CPU_HAS_${upper})
  set_property(GLOBAL APPEND PROPERTY tensorlite_cpu_definitions TL_CPU_HAS_${upper})
  if(NOT tensorlite_can_isolate)
    target_sources(tensorlite PRIVATE $<TARGET_OBJECTS:${objects}>)
    set_property(GLOBAL APPEND PROPERTY tensorlite_cpu_objects $<TARGET_OBJECTS:${objects}>)
    return()
  endif()
  set(joined ${CMAKE_CURRENT_BINARY_DIR}/cpu_${isa}.o)
  add_custom_command(OUTPUT ${joined}
    COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o ${joined} $<TARGET_OBJECTS:${objects}>
    COMMAND ${CMAKE_OBJCOPY} --keep-global-symbol=cpu_kernel_table_${isa} ${joined}
    DEPENDS ${objects} $<TARGET_OBJECTS:${objects}>
    COMMENT "Joining the ${isa} kernels" COMMAND_EXPAND_LISTS VERBATIM)
  set_source_files_properties(${joined} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  target_sources(tensorlite PRIVATE ${joined})
  set_property(GLOBAL APPEND PROPERTY tensorlite_cpu_objects ${joined})
  if(TENSORLITE_BUILD_TESTS AND CMAKE_NM)
    add_test(NAME cpu_${isa}_symbols COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DOBJECT=${joined} -DEXPECTED=cpu_kernel_table_${isa}
                                             -P ${PROJECT_SOURCE_DIR}/cmake/check_symbols.cmake)
  endif()
endfunction()

if(tensorlite_cpu_sources)
  foreach(isa IN LISTS tensorlite_isas)
    tensorlite_add_isa(${isa})
  endforeach()
endif()
