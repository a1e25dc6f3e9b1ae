/* npu-dra-libraries FOLDER...: a container's loader finds the libraries in these folders.
 *
 * A createContainer hook of the OCI runtime specification. The runtime runs it in the namespaces of
 * the new container, before it pivots into the container's root: `/` is the host's, what the
 * container will see is mounted at the path of its root, nothing of it has run. stdin has the
 * container's state.
 *
 * ldconfig of the host makes a new ld.so.cache of the image's libraries and of the folders. Two
 * things are kept apart for that. Each has mounts of its own, which the container does not see:
 *
 *   a child   sees the image's root file system and the folders, nothing else, all read-only, and
 *             becomes ldconfig there, with no right but to read any file, and with limits of time
 *             and memory. So nothing that the image's files do to ldconfig gets further.
 *   we        see the image's root file system alone, without the volumes and the host's folders
 *             that are mounted in it, and put the cache there. No link leads out of it.
 *
 * Nothing of the image is executed, and no environment is used. Other containers of the pod may run
 * already and share its processes. The kernel lets them open what a process has if they have all of
 * its rights. So both processes are hidden (not dumpable), and the child closes everything before it
 * gives up its rights.
 *
 * What cannot be done keeps no container from its start: the journal of the host says so once, and
 * the exit status is 0.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "json.h"
#include "ldconfig.h"
#include "say.h"
#include "tree.h"

#define LIMIT (8 << 20) /* of state and config.json: annotations may be in both, escaped */

/* The container's root, as a path of the host. */
static const char *read_root(void)
{
    char id[256], bundle[PATH_MAX], root[PATH_MAX], config[PATH_MAX + 16];
    static char place[PATH_MAX];
    struct stat container, host;
    size_t length;
    char *text = read_whole(STDIN_FILENO, LIMIT, &length);

    if (text == NULL)
        give_up("cannot read the state on stdin");
    struct json state = json_text(text, length);
    if (json_string(json_member(state, "id"), id, sizeof(id)))
        speak_of(id);
    /* The folder that this process starts in is the image's. */
    if (!json_string(json_member(state, "bundle"), bundle, sizeof(bundle)) || bundle[0] != '/')
        give_up_because("the state on stdin has no absolute \"bundle\"");
    free(text);

    snprintf(config, sizeof(config), "%s/config.json", bundle);
    int file = open(config, O_RDONLY | O_CLOEXEC);
    text = file < 0 ? NULL : read_whole(file, LIMIT, &length);
    if (text == NULL)
        give_up("cannot read the bundle's config.json");
    close(file);
    struct json path = json_member(json_member(json_text(text, length), "root"), "path");
    if (!json_string(path, root, sizeof(root)))
        give_up_because("the bundle's config.json has no \"root.path\"");
    free(text);

    int size = root[0] == '/' ? snprintf(place, sizeof(place), "%s", root)
                              : snprintf(place, sizeof(place), "%s/%s", bundle, root);
    if (size >= (int)sizeof(place))
        give_up_because("the path of its root is too long");
    if (stat(place, &container) != 0 || stat("/", &host) != 0)
        give_up("cannot look at its root");
    if (container.st_dev == host.st_dev && container.st_ino == host.st_ino)
        give_up_because("its root is the host's");
    return place;
}

/* Puts cache and folders where the image has such things. */
static void put(const char *root, char *const folders[], const char *cache, size_t length)
{
    char text[PATH_MAX];
    size_t size = 0;
    int image = tree_alone(root);

    /* A read-only root may be so already; our own mount of it need not be. */
    if (image >= 0 && fchdir(image) == 0)
        (void)tree_limit(".", 0);
    if (image < 0 || tree_become(image) != 0)
        give_up("cannot enter its root");
    if (mkdir("/etc", 0755) != 0 && errno != EEXIST)
        give_up("cannot make its /etc");
    int etc = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (etc < 0)
        give_up("cannot open its /etc");
    if (replace(etc, "ld.so.cache", cache, length) != 0)
        give_up("cannot write its /etc/ld.so.cache");
    /* For an ldconfig that runs in the container later, where its ld.so.conf names that folder. */
    int folder = openat(etc, "ld.so.conf.d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (char *const *one = folders; *one != NULL && size < sizeof(text); one++)
        size += (size_t)snprintf(text + size, sizeof(text) - size, "%s\n", *one);
    if (folder >= 0 && size < sizeof(text))
        (void)replace(folder, "ascend-npu-dra.conf", text, size);
}

int main(int count, char **arguments)
{
    size_t length;

    /* Before anything else, and for the child too: an exec alone ends it. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        give_up("cannot hide from other processes");
    close_but_standard(); /* a runtime's, that it left open */
    umask(022);
    open_journal();
    char *const *folders = arguments + (count > 0 ? 1 : 0);
    const char *root = read_root();
    char *cache = make_cache(root, folders, &length);
    put(root, folders, cache, length);
    return 0;
}
