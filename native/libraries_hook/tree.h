/* Trees of mounts that a process sees instead of the host's. Functions give -1 and errno if they
 * fail, else 0 or a descriptor. */
#ifndef TREE_H
#define TREE_H

/* Gives this process mounts of its own: from now on nothing that it mounts is seen elsewhere. */
int tree_separate(void);

/* Mounts the file system of a folder over it, without what is mounted below it.
 * Returns a descriptor of that mount, or -1. */
int tree_alone(const char *folder);

/* Makes *tree* the root for names. The process keeps its other descriptors. */
int tree_enter(int tree);

/* Makes a mount the only tree that there is for this process: the old one is gone. */
int tree_become(int tree);

/* Mounts the folder *source* of the tree *from* at *target* of the tree *into*, with no more than
 * the rights in *flags* (MS_RDONLY and the like). Each name is looked up within its own tree, so
 * that no link in it leads out of that tree; /proc has nothing to mount. Where *into* lacks the
 * place, it is made, seen by this process alone. The root for names is *into* afterwards. */
int tree_carry(int from, const char *source, int into, const char *target, unsigned long flags);

/* Gives a mount exactly the limits in *flags*, as far as it may lose those that it has. */
int tree_limit(const char *path, unsigned long flags);

#endif
