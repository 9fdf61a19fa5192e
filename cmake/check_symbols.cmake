# Fails unless EXPECTED is the only symbol that OBJECT defines for others to see.
execute_process(COMMAND ${NM} --defined-only --extern-only ${OBJECT} OUTPUT_VARIABLE listing RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "nm failed on ${OBJECT}")
endif()
string(STRIP "${listing}" listing)
if(NOT listing MATCHES "^[0-9a-f]+ [A-Z] ${EXPECTED}$")
  message(FATAL_ERROR "${OBJECT} should define ${EXPECTED} alone, but defines:\n${listing}")
endif()
