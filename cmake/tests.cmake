# Each tests/*_test.cpp is one program and one ctest entry. Catch2 2.13 and 3.x both serve: tests include "catch.hpp" of this project.
add_library(tensorlite_test_main OBJECT ${PROJECT_SOURCE_DIR}/tests/main.cpp)
target_link_libraries(tensorlite_test_main PUBLIC Catch2::Catch2)
target_include_directories(tensorlite_test_main PUBLIC ${PROJECT_SOURCE_DIR}/tests)
tensorlite_target(tensorlite_test_main)

# A plug-in as a user's: it has its own copy of the CPU kernels and needs no symbol of the library.
file(GLOB tensorlite_simulated_gpu CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/simulated_gpu/*.cpp)
if(tensorlite_simulated_gpu)
  get_property(cpu_objects GLOBAL PROPERTY tensorlite_cpu_objects)
  get_property(cpu_definitions GLOBAL PROPERTY tensorlite_cpu_definitions)
  add_library(tensorlite_simulated_gpu MODULE ${tensorlite_simulated_gpu} ${PROJECT_SOURCE_DIR}/src/platform.cpp
    ${PROJECT_SOURCE_DIR}/src/cpu/backend.cpp ${PROJECT_SOURCE_DIR}/src/cpu/parallel.cpp ${cpu_objects})
  target_compile_definitions(tensorlite_simulated_gpu PRIVATE TENSORLITE_BUILDING ${cpu_definitions})
  target_include_directories(tensorlite_simulated_gpu PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(tensorlite_simulated_gpu PRIVATE OpenMP::OpenMP_CXX Threads::Threads ${CMAKE_DL_LIBS})
  if(NOT TENSORLITE_SANITIZE)
    target_link_options(tensorlite_simulated_gpu PRIVATE LINKER:--no-undefined)
  endif()
  tensorlite_target(tensorlite_simulated_gpu)
  add_dependencies(tensorlite_simulated_gpu tensorlite)
endif()

# LeakSanitizer crashes in a process with memory that may not be read, as the simulated GPU's: leaks are looked for without it.
set(tensorlite_no_leak_check ASAN_OPTIONS=detect_leaks=0)

file(GLOB tensorlite_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*_test.cpp)
if(NOT TARGET captcha)
  list(FILTER tensorlite_tests EXCLUDE REGEX "/captcha_")
endif()
foreach(source IN LISTS tensorlite_tests)
  get_filename_component(name ${source} NAME_WE)
  tensorlite_program(${name} ${source})
  target_compile_definitions(${name} PRIVATE TENSORLITE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE tensorlite_test_main nlohmann_json::nlohmann_json ZLIB::ZLIB Threads::Threads)
  # Most of a test's cost is its compilation, under the sanitizers above all.
  if(TENSORLITE_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)
  else()
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  set(arguments)
  if(TENSORLITE_SANITIZE AND name STREQUAL "mnist_cnn_test")
    set(arguments "~it learns*")  # minutes of instrumented kernels that its shorter trainings run, too
  endif()
  add_test(NAME ${name} COMMAND ${name} ${arguments})
  if(TARGET tensorlite_simulated_gpu)
    target_compile_definitions(${name} PRIVATE TENSORLITE_SIMULATED_GPU_PLUGIN="$<TARGET_FILE:tensorlite_simulated_gpu>")
    add_dependencies(${name} tensorlite_simulated_gpu)
    # Once more on a simulated GPU. Tests of single kernels and of the devices themselves bring their own.
    if(NOT name MATCHES "^(cpu|device|mnist|captcha|gpu_faults)_")
      add_test(NAME ${name}_simulated COMMAND ${name})
      set_tests_properties(${name}_simulated PROPERTIES LABELS simulated ENVIRONMENT
        "${tensorlite_no_leak_check};TENSORLITE_CUDA_PLUGIN=$<TARGET_FILE:tensorlite_simulated_gpu>;TENSORLITE_SIMULATED_GPUS=1x2048;TENSORLITE_TEST_DEVICE=GPU:0;TENSORLITE_REQUIRE_DEVICE=1")
    elseif(name MATCHES "^device_")
      set_tests_properties(${name} PROPERTIES ENVIRONMENT "${tensorlite_no_leak_check}")
    endif()
  endif()
endforeach()

# The programs that device_programs_test runs.
if(TARGET tensorlite-doctor)
  target_compile_definitions(device_programs_test PRIVATE TENSORLITE_DOCTOR="$<TARGET_FILE:tensorlite-doctor>")
  add_dependencies(device_programs_test tensorlite-doctor)
endif()
if(TARGET device_tour)
  target_compile_definitions(device_tour PRIVATE TENSORLITE_SIMULATED_GPU_PLUGIN="$<TARGET_FILE:tensorlite_simulated_gpu>")
  target_compile_definitions(device_programs_test PRIVATE TENSORLITE_DEVICE_TOUR="$<TARGET_FILE:device_tour>")
  add_dependencies(device_programs_test device_tour)
endif()

# The trainer that mnist_cnn_test runs.
if(TARGET mnist_cnn)
  target_compile_definitions(mnist_cnn_test PRIVATE TENSORLITE_MNIST_CNN="$<TARGET_FILE:mnist_cnn>")
  add_dependencies(mnist_cnn_test mnist_cnn)
endif()

# The captcha program's parts and itself.
if(TARGET captcha)
  foreach(name captcha_generator_test)
    target_link_libraries(${name} PRIVATE captcha_parts)
    target_compile_definitions(${name} PRIVATE TENSORLITE_CAPTCHA="$<TARGET_FILE:captcha>")
    add_dependencies(${name} captcha)
  endforeach()
endif()
