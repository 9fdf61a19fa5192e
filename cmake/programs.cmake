# Programs that use the library: each is built where its sources exist.

# A folder of sources makes one program, named after the folder.
function(tensorlite_folder_program folder)
  get_filename_component(name ${folder} NAME)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  if(sources)
    tensorlite_program(${name} ${sources})
    target_link_libraries(${name} PRIVATE CLI11::CLI11 nlohmann_json::nlohmann_json)
  endif()
endfunction()

if(TENSORLITE_BUILD_TOOLS AND EXISTS ${PROJECT_SOURCE_DIR}/tools/doctor.cpp)
  tensorlite_program(tensorlite-doctor ${PROJECT_SOURCE_DIR}/tools/doctor.cpp)
  target_link_libraries(tensorlite-doctor PRIVATE CLI11::CLI11 nlohmann_json::nlohmann_json)
endif()

if(TENSORLITE_BUILD_EXAMPLES)
  tensorlite_folder_program(examples/device_tour)
  tensorlite_folder_program(examples/mnist_cnn)
  include(captcha)
endif()

if(TENSORLITE_BUILD_BENCHMARKS)
  file(GLOB benches CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/benchmarks/*_bench.cpp)
  if(NOT TARGET captcha_parts)
    list(FILTER benches EXCLUDE REGEX "/captcha_")
  endif()
  foreach(source IN LISTS benches)
    get_filename_component(name ${source} NAME_WE)
    tensorlite_program(${name} ${source})
    target_link_libraries(${name} PRIVATE benchmark::benchmark $<$<STREQUAL:${name},captcha_bench>:captcha_parts>)
  endforeach()
  if(TARGET train_bench)  # trains the networks of an example
    target_sources(train_bench PRIVATE ${PROJECT_SOURCE_DIR}/examples/mnist_cnn/recipe.cpp)
  endif()
endif()

if(TENSORLITE_BUILD_TESTS)
  include(tests)
endif()
