/* Tells the node's people what could not be done. */
#ifndef SAY_H
#define SAY_H

/* Opens the way to the host's journal, which is out of reach once the host's root is. */
void open_journal(void);

/* From now on what is said names this container. */
void speak_of(const char *container);

/* Says what could not be done and why (errno), and ends: the container starts without it. */
_Noreturn void give_up(const char *what);

/* The same where errno says nothing. */
_Noreturn void give_up_because(const char *what);

#endif
