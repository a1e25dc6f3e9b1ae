#include "ldconfig.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "files.h"
#include "say.h"
#include "tree.h"

#ifndef MILLISECONDS
#define MILLISECONDS 20000 /* for ldconfig: 30 if the image is in memory, more on a slow disk */
#endif
#ifndef GUARD
#define GUARD CAP_WAKE_ALARM /* a right that runtimes do not give, and that no server minds */
#endif
#define UNABLE 125 /* exit status of the child that does not get as far as ldconfig */
#define NO_FOLDER 124 /* and of the one that has nothing to add to the cache */
#define LDCONFIG_LIMIT (16 << 20)
#define CACHE_LIMIT (16 << 20)
#define WORKPLACE "/sys" /* any folder that each host has: we mount over it, seen by us alone */
#define DESK "/dev"      /* any folder that each container has: the workplace for ldconfig */
#define CONF "ld.so.conf"
#define CACHE "ld.so.cache"
#define READ_ONLY (MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)

/* The loaders of Debian and of openEuler look in different folders without being told. The host's
 * ldconfig knows those of its own system only. */
static const char OTHER_FOLDERS[] =
    "/lib64\n/usr/lib64\n"
#if defined(__x86_64__)
    "/lib/x86_64-linux-gnu\n/usr/lib/x86_64-linux-gnu\n";
#elif defined(__aarch64__)
    "/lib/aarch64-linux-gnu\n/usr/lib/aarch64-linux-gnu\n";
#else
    "";
#endif

/* Ubuntu has a shell script under the usual name. */
static const char *const LDCONFIG[] = {
    "/sbin/ldconfig.real",
    "/sbin/ldconfig",
    "/usr/sbin/ldconfig",
};

/* Whether a program needs no loader, as none of the image's may be used. */
static bool is_static(const char *program, size_t length)
{
    Elf64_Ehdr head;
    Elf64_Phdr part;

    if (length < sizeof(head) || memcmp(program, ELFMAG, SELFMAG) != 0 ||
        program[EI_CLASS] != ELFCLASS64)
        return false;
    memcpy(&head, program, sizeof(head));
    for (size_t i = 0; i < head.e_phnum; i++) {
        size_t at = head.e_phoff + i * sizeof(part);
        if (head.e_phoff > length || at + sizeof(part) > length)
            return false;
        memcpy(&part, program + at, sizeof(part));
        if (part.p_type == PT_INTERP)
            return false;
    }
    return true;
}

/* The host's ldconfig, in memory: no other process can write to the host's file through ours. */
static int copy_ldconfig(void)
{
    char *program = NULL;
    size_t length = 0;

    for (size_t i = 0; program == NULL && i < sizeof(LDCONFIG) / sizeof(*LDCONFIG); i++) {
        int file = open(LDCONFIG[i], O_RDONLY | O_CLOEXEC);
        if (file < 0)
            continue;
        program = read_whole(file, LDCONFIG_LIMIT, &length);
        close(file);
        if (program != NULL && !is_static(program, length)) {
            free(program);
            program = NULL;
        }
    }
    if (program == NULL)
        give_up_because("the host has no statically linked ldconfig");
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int copy = memfd_create("ldconfig", flags | 0x10 /* MFD_EXEC, of Linux 6.3 */);
    if (copy < 0 && errno == EINVAL)
        copy = memfd_create("ldconfig", flags);
    if (copy < 0 || write_whole(copy, program, length) != 0 || fchmod(copy, 0500) != 0 ||
        fcntl(copy, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
        give_up("cannot copy the host's ldconfig into memory");
    free(program);
    return copy;
}

/* Where ldconfig writes, and what it reads first: the folders, then what the image says. */
static int make_workplace(char *const folders[])
{
    if (mount("tmpfs", WORKPLACE, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
              "size=64m,nr_inodes=16,mode=0755") != 0)
        give_up("cannot mount a tmpfs");
    int workplace = open(WORKPLACE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int conf = openat(workplace, CONF, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (conf < 0)
        give_up("cannot write what ldconfig reads");
    for (char *const *folder = folders; *folder != NULL; folder++)
        dprintf(conf, "%s\n", *folder);
    dprintf(conf, "include /etc/" CONF "\n%s", OTHER_FOLDERS);
    close(conf);
    return workplace;
}

static void limit(int resource, rlim_t most)
{
    struct rlimit both = {most, most};

    if (setrlimit(resource, &both) != 0)
        _exit(UNABLE);
}

/* Keeps the right to read any file, as images have folders that only root reads (the right to read
 * alone also opens files by number), and the guard: other containers that share this process's
 * namespace lack it, so the kernel keeps them from running their code in ldconfig, without the
 * filters that the runtime has put on them. */
static void drop_rights(void)
{
    const uint64_t kept = 1ULL << CAP_DAC_OVERRIDE | 1ULL << GUARD;
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct rights[2];

    for (int capability = 0; capability < 64; capability++)
        if (!(kept >> capability & 1) && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 &&
            errno != EINVAL)
            _exit(UNABLE);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || syscall(SYS_capget, &head, rights) != 0)
        _exit(UNABLE);
    for (int half = 0; half < 2; half++) {
        rights[half].permitted &= (uint32_t)(kept >> 32 * half);
        rights[half].effective = rights[half].permitted;
        rights[half].inheritable = 0;
    }
    if (syscall(SYS_capset, &head, rights) != 0)
        _exit(UNABLE);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, 1 + MILLISECONDS / 1000);
    limit(RLIMIT_FSIZE, CACHE_LIMIT);
    limit(RLIMIT_NOFILE, 64); /* bounds how deep the image's ld.so.conf includes files, too */
    limit(RLIMIT_DATA, 256UL << 20);
    limit(RLIMIT_AS, 8UL << 30); /* libraries are mapped whole, one at a time */
}

/* The child: becomes ldconfig among the image's files and the folders. */
_Noreturn static void run_ldconfig(int ldconfig, const char *root, char *const folders[])
{
    char *arguments[] = {"ldconfig", "-i", "-X", "-f", DESK "/" CONF, "-C", DESK "/" CACHE, NULL};
    char *environment[] = {NULL};

    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 || tree_separate() != 0)
        _exit(UNABLE);
    int host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int container = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int image = tree_alone(root);
    if (host < 0 || container < 0 || image < 0)
        _exit(UNABLE);
    if (tree_carry(host, WORKPLACE, image, DESK, MS_NOSUID | MS_NODEV | MS_NOEXEC) != 0)
        _exit(UNABLE);
    size_t carried = 0; /* not all, as some hosts lack some */
    for (char *const *folder = folders; *folder != NULL; folder++)
        carried += tree_carry(container, *folder, image, *folder, READ_ONLY) == 0;
    if (carried == 0)
        _exit(NO_FOLDER);
    if (tree_enter(host) != 0 || fchdir(image) != 0 || tree_limit(".", READ_ONLY) != 0 ||
        tree_become(image) != 0)
        _exit(UNABLE);
    /* A process with few rights may be opened by many: nothing of the host stays in this one, not
     * even /dev/null, whose mode could be changed. It reads and writes the sealed copy, in vain. */
    for (int descriptor = 0; descriptor <= STDERR_FILENO; descriptor++)
        if (dup2(ldconfig, descriptor) < 0)
            _exit(UNABLE);
    close_but_standard();
    umask(022);
    drop_rights();
    syscall(SYS_execveat, STDIN_FILENO, "", arguments, environment, AT_EMPTY_PATH);
    _exit(UNABLE);
}

static long long milliseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Others of the pod's processes may send the signal too, or stop the child: only its end counts. */
static void wait_for(pid_t child)
{
    long long end = milliseconds() + MILLISECONDS;
    sigset_t ended;
    pid_t found;
    int status;

    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD);
    while ((found = waitpid(child, &status, WNOHANG)) == 0) {
        long long left = end - milliseconds();
        struct timespec most = {left / 1000, left % 1000 * 1000000L};
        if (left <= 0 || (sigtimedwait(&ended, NULL, &most) < 0 && errno != EINTR)) {
            kill(child, SIGKILL); /* not waited for: it may hang in the kernel */
            give_up_because("ldconfig takes too long on its files");
        }
    }
    if (found != child)
        give_up("cannot wait for ldconfig");
    if (WIFEXITED(status) && WEXITSTATUS(status) == UNABLE)
        give_up_because("ldconfig cannot be kept apart");
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_FOLDER)
        give_up_because("none of the driver's folders can be reached in it");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        give_up_because("the host's ldconfig fails on its files");
}

char *make_cache(const char *root, char *const folders[], size_t *length)
{
    sigset_t ended;
    int ldconfig = copy_ldconfig();

    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &ended, NULL);
    if (tree_separate() != 0)
        give_up("cannot have mounts of our own");
    int workplace = make_workplace(folders);
    /* Alone among its processes: what it leaves behind ends with it. */
    if (unshare(CLONE_NEWPID) != 0)
        give_up("cannot have processes of our own");
    pid_t child = fork();
    if (child < 0)
        give_up("cannot fork");
    if (child == 0)
        run_ldconfig(ldconfig, root, folders);
    wait_for(child);
    int file = open_regular(workplace, CACHE, CACHE_LIMIT);
    char *cache = file < 0 ? NULL : read_whole(file, CACHE_LIMIT, length);
    if (cache == NULL)
        give_up("cannot read what ldconfig wrote");
    close(file);
    return cache;
}
