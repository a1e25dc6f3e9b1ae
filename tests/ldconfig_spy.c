/* Stands in for the host's ldconfig, and writes what it could do in the place of the cache. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;

static int can_create(const char *path)
{
    return open(path, O_CREAT | O_WRONLY, 0644) >= 0;
}

int main(int count, char **arguments)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct rights[2];
    FILE *report = fopen(arguments[count - 1], "w");

    fprintf(report, "arguments:");
    for (int i = 1; i < count; i++)
        fprintf(report, " %s", arguments[i]);
    syscall(SYS_capget, &head, rights);
    fprintf(report, "\nrights: %x %x\n", rights[0].permitted, rights[1].permitted);
    fprintf(report, "new rights: %d\n", !prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    fprintf(report, "process: %d\n", getpid());
    fprintf(report, "environment: %d\n", environ[0] != NULL);
    fprintf(report, "writes: %d %d %d\n", can_create("/etc/x"), can_create("/x"),
            can_create("/opt/driver/lib64/x"));
    fprintf(report, "processes: %d\n", access("/proc/self", F_OK) == 0);
    for (int descriptor = 3; descriptor < 1024; descriptor++)
        if (fcntl(descriptor, F_GETFD) >= 0 && descriptor != fileno(report))
            fprintf(report, "open: %d\n", descriptor);
    DIR *volume = opendir("/volume");
    for (struct dirent *entry; volume && (entry = readdir(volume));)
        if (entry->d_name[0] != '.')
            fprintf(report, "sees: %s\n", entry->d_name);
    return fclose(report);
}
