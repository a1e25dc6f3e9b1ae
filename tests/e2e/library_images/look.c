/* Says where the loader finds each library, for images without a shell. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

int main(int count, char **names)
{
    for (int i = 1; i < count; i++) {
        struct link_map *map = NULL;
        void *library = dlopen(names[i], RTLD_NOW);
        if (library != NULL && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0)
            printf("%s %s\n", names[i], map->l_name);
        else
            printf("%s missing\n", names[i]);
    }
    return 0;
}
