# SPDX-License-Identifier: Apache-2.0
#
# embed_program(LIBRARY PROGRAM SYMBOL): puts the stripped executable of target PROGRAM into LIBRARY as
# bytes, as `extern const char SYMBOL[], SYMBOL_end[];`. io/embed.h makes a memfd of it that can be
# executed, so that nothing depends on where things are installed.
function(embed_program library program symbol)
  set(bytes ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.bin)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.c)
  file(WRITE ${source}.in
    "extern const char ${symbol}[], ${symbol}_end[];\n"
    "__asm__(\".section .rodata.${symbol},\\\"a\\\",@progbits\\n.balign 16\\n\"\n"
    "\t\".globl ${symbol}\\n.type ${symbol},@object\\n${symbol}:\\n.incbin \\\"${bytes}\\\"\\n\"\n"
    "\t\".globl ${symbol}_end\\n${symbol}_end:\\n.byte 0\\n.size ${symbol},.-${symbol}\\n.text\\n\");\n")
  add_custom_command(
    OUTPUT ${source}
    COMMAND ${CMAKE_STRIP} -o ${bytes} $<TARGET_FILE:${program}>
    COMMAND ${CMAKE_COMMAND} -E copy ${source}.in ${source}
    COMMAND ${CMAKE_COMMAND} -E touch ${source}
    DEPENDS ${program} ${source}.in
    BYPRODUCTS ${bytes}
    COMMENT "embed ${program}"
    VERBATIM)
  target_sources(${library} PRIVATE ${source})
endfunction()
