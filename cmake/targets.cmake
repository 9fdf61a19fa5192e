# Flags that every compiled target of the project gets. Per target, never per directory: nothing here reaches a user of the package.
function(tensorlite_target target)
  set_target_properties(${target} PROPERTIES CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
                                             CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic>)
  if(TENSORLITE_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
  endif()
  if(TENSORLITE_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TENSORLITE_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all>)
    target_link_options(${target} PRIVATE -fsanitize=${TENSORLITE_SANITIZE})
  endif()
endfunction()

# A program, test or benchmark of the project.
function(tensorlite_program target)
  add_executable(${target} ${ARGN})
  target_link_libraries(${target} PRIVATE tensorlite::tensorlite)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(${target} PRIVATE TENSORLITE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  tensorlite_target(${target})
endfunction()
