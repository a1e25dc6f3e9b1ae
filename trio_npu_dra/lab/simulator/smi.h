/* What the npu-smi of all generations does alike. */
#ifndef SIMULATOR_SMI_H
#define SIMULATOR_SMI_H

#include <stdbool.h>

#include "dcmi_abi.h"

#define MAX_CARDS 64
#define MAX_PROCESSES 64

/* The library: beside this program first (usr/local/bin next to usr/local/Ascend), then at the
 * driver's usual places, then as the dynamic loader finds it. Ends the program without one.
 */
void *smi_library(void);

/* Sets the function pointer to the library's function, or ends the program. */
void smi_bind(void *library, const char *name, void *function);

/* Ends the program with the vendor's words if dcmi_init or the list failed. */
void smi_check_init(int code);

/* What is to be printed: "info", "info -l", or "info watch", the first again every second. Ends the
 * program if it is none of them. */
enum smi_info { SMI_TABLE, SMI_SHORT_LIST, SMI_WATCH };
enum smi_info smi_info(int argc, char **argv);

/* Waits for a second, with all that was printed shown. */
void smi_pause(void);

/* What npu-smi does with "-t" (npu-smi-vnpu.c); returns its exit status. */
int smi_manage_vnpus(int argc, char **argv);

void smi_number(char *out, size_t size, int code, double value, int decimals);
void smi_process_name(int pid, char *out, size_t size);
const char *smi_health_word(int code, unsigned health);

#endif
