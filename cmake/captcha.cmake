# examples/captcha draws letters with FreeType and keeps pictures as PNG: it is built where both are found.
find_package(Freetype QUIET)
find_package(PNG QUIET)
if(NOT FREETYPE_FOUND OR NOT PNG_FOUND)
  message(STATUS "tensorlite: examples/captcha is not built, it needs FreeType and libpng "
                 "(apt-get install libfreetype-dev libpng-dev fonts-noto-mono)")
  return()
endif()

# The font is looked for again when the program runs; --font names another one.
find_file(TENSORLITE_CAPTCHA_FONT NotoMono-Regular.ttf DOC "The font that captchas are drawn with"
          PATHS /usr/share/fonts/truetype/noto /usr/share/fonts /usr/local/share/fonts PATH_SUFFIXES truetype/noto noto)
if(NOT TENSORLITE_CAPTCHA_FONT)
  message(STATUS "tensorlite: NotoMono-Regular.ttf was not found (apt-get install fonts-noto-mono); captcha will ask for --font")
endif()

# All but main(), for the program and its tests.
file(GLOB captcha_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/captcha/*.cpp)
list(REMOVE_ITEM captcha_sources ${PROJECT_SOURCE_DIR}/examples/captcha/main.cpp)
add_library(captcha_parts STATIC ${captcha_sources})
# Its loops over pixels run half as long again without the vectorizer, which starts at -O3.
set_source_files_properties(${PROJECT_SOURCE_DIR}/examples/captcha/raster.cpp PROPERTIES COMPILE_OPTIONS
                            $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU,Clang>>:-O3>)
target_include_directories(captcha_parts PUBLIC ${PROJECT_SOURCE_DIR}/examples/captcha)
target_compile_definitions(captcha_parts PRIVATE TENSORLITE_CAPTCHA_FONT="$<$<BOOL:${TENSORLITE_CAPTCHA_FONT}>:${TENSORLITE_CAPTCHA_FONT}>")
target_link_libraries(captcha_parts PUBLIC tensorlite::tensorlite PRIVATE CLI11::CLI11 nlohmann_json::nlohmann_json Freetype::Freetype
                                    PNG::PNG Threads::Threads)
tensorlite_target(captcha_parts)

tensorlite_program(captcha ${PROJECT_SOURCE_DIR}/examples/captcha/main.cpp)
target_link_libraries(captcha PRIVATE captcha_parts)
