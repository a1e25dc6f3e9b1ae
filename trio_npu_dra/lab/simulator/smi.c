/* What the npu-smi of all generations does alike. */
#include "smi.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *open_library(void)
{
    static const char *const places[] = {
        "/usr/local/Ascend/driver/lib64/libdcmi.so",
        "/usr/local/Ascend/driver/lib64/driver/libdcmi.so",
        "/usr/local/dcmi/libdcmi.so",
        "libdcmi.so",
    };
    char self[PATH_MAX], beside[PATH_MAX + 64];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length > 0) {
        self[length] = '\0';
        *strrchr(self, '/') = '\0';
        snprintf(beside, sizeof beside, "%s/../Ascend/driver/lib64/libdcmi.so", self);
        void *library = dlopen(beside, RTLD_NOW);
        if (library != NULL) {
            return library;
        }
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        void *library = dlopen(places[i], RTLD_NOW);
        if (library != NULL) {
            return library;
        }
    }
    return NULL;
}

void *smi_library(void)
{
    void *library = open_library();
    if (library == NULL) {
        fprintf(stderr, "dcmi module initialize failed: libdcmi.so not found (%s)\n", dlerror());
        exit(EXIT_FAILURE);
    }
    return library;
}

void smi_bind(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        fprintf(stderr, "libdcmi.so has no %s\n", name);
        exit(EXIT_FAILURE);
    }
    memcpy(function, &symbol, sizeof symbol);
}

void smi_number(char *out, size_t size, int code, double value, int decimals)
{
    if (code == DCMI_OK) {
        snprintf(out, size, "%.*f", decimals, value);
    } else {
        snprintf(out, size, "NA");
    }
}

void smi_process_name(int pid, char *out, size_t size)
{
    char path[64];
    snprintf(out, size, "%s", "-");
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        if (fgets(out, (int)size, file) != NULL) {
            out[strcspn(out, "\n")] = '\0';
        }
        fclose(file);
    }
}

const char *smi_health_word(int code, unsigned health)
{
    static const char *const words[] = {"OK", "Warning", "Alarm", "Critical"};
    return code == DCMI_OK && health < sizeof words / sizeof words[0] ? words[health] : "UNKNOWN";
}

enum smi_info smi_info(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "info") == 0) {
        return SMI_TABLE;
    }
    if (argc == 3 && strcmp(argv[1], "info") == 0) {
        if (strcmp(argv[2], "-l") == 0) {
            return SMI_SHORT_LIST;
        }
        if (strcmp(argv[2], "watch") == 0) {
            return SMI_WATCH;
        }
    }
    fputs("usage: npu-smi info [-l | watch]\n", stderr);
    exit(EXIT_FAILURE);
}

void smi_pause(void)
{
    fflush(stdout);
    sleep(1);
}

void smi_check_init(int code)
{
    if (code != DCMI_OK) {
        printf("dcmi module initialize failed. ret is %d\n", code);
        exit(EXIT_FAILURE);
    }
}
