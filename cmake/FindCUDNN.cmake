# The headers of cuDNN 9 (its libraries are opened at run time). Sets CUDNN_FOUND, CUDNN_INCLUDE_DIR, CUDNN_VERSION.
# Hint: CUDNN_ROOT, as a variable or in the environment.
find_path(CUDNN_INCLUDE_DIR cudnn_version.h HINTS ${CUDNN_ROOT} ENV CUDNN_ROOT ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
mark_as_advanced(CUDNN_INCLUDE_DIR)
if(CUDNN_INCLUDE_DIR)
  file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h lines REGEX "#define CUDNN_(MAJOR|MINOR|PATCHLEVEL) [0-9]+")
  string(REGEX REPLACE "[^0-9;]+" "" lines "${lines}")
  list(JOIN lines "." CUDNN_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN REQUIRED_VARS CUDNN_INCLUDE_DIR VERSION_VAR CUDNN_VERSION)
