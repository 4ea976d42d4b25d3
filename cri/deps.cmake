# SPDX-License-Identifier: Apache-2.0
#
# Finds what crisp links, and says which Debian package holds what is missing.
find_package(Threads REQUIRED)
find_package(PkgConfig)
if(NOT PKG_CONFIG_FOUND)
  message(FATAL_ERROR "pkg-config is missing; install it: apt-get install pkg-config")
endif()

# need(TARGET MODULE PACKAGE): imports pkg-config MODULE as PkgConfig::TARGET, or names the package to install.
function(need target module package)
  pkg_check_modules(${target} IMPORTED_TARGET GLOBAL ${module})
  if(NOT ${target}_FOUND)
    message(FATAL_ERROR "${module} is missing; install it: apt-get install ${package}")
  endif()
endfunction()

need(SQLITE sqlite3 libsqlite3-dev)
need(SECCOMP libseccomp libseccomp-dev)
need(SYSTEMD libsystemd libsystemd-dev)
need(PROTOBUFC libprotobuf-c libprotobuf-c-dev)
need(JANSSON jansson libjansson-dev)
need(CYAML libcyaml libcyaml-dev)
need(YAML yaml-0.1 libyaml-dev)
need(ARCHIVE libarchive libarchive-dev)
need(CRYPTO libcrypto libssl-dev)
need(CURL libcurl libcurl4-openssl-dev)
need(CMOCKA cmocka libcmocka-dev)

# libev ships no pkg-config file
find_path(EV_INCLUDE ev.h)
find_library(EV_LIBRARY ev)
if(NOT EV_INCLUDE OR NOT EV_LIBRARY)
  message(FATAL_ERROR "libev is missing; install it: apt-get install libev-dev")
endif()

# need_program(VARIABLE NAME PACKAGE)
function(need_program variable name package)
  find_program(${variable} ${name})
  if(NOT ${variable})
    message(FATAL_ERROR "${name} is missing; install it: apt-get install ${package}")
  endif()
endfunction()
need_program(PROTOC protoc protobuf-compiler)
need_program(PROTOC_C protoc-c protobuf-c-compiler)

# h2o's private parts are used (cri/grpc_h2o.c), so the version is exact, not a minimum; its pkg-config
# file carries the library's number, so the header is asked
pkg_check_modules(H2O IMPORTED_TARGET GLOBAL libh2o-evloop)
find_file(H2O_VERSION_H h2o/version.h)
if(NOT H2O_FOUND OR NOT H2O_VERSION_H)
  message(FATAL_ERROR "libh2o-evloop is missing; install it: apt-get install libh2o-evloop-dev")
endif()
file(STRINGS ${H2O_VERSION_H} H2O_VERSION_LINE REGEX "define H2O_VERSION ")
if(NOT H2O_VERSION_LINE MATCHES "\"2\\.2\\.5\"")
  message(FATAL_ERROR "h2o is ${H2O_VERSION_LINE}, but cri/grpc_h2o.c uses the private structures of 2.2.5: port it first")
endif()
