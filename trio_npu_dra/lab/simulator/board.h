/* Access to the state file, to the cards that dcmi_init saw, and the start of every call. */
#ifndef SIMULATOR_BOARD_H
#define SIMULATOR_BOARD_H

#include <stdbool.h>

#include "dcmi_abi.h"
#include "dcmi_functions.h"
#include "state.h"

/* --- board.c: the state file ------------------------------------------------------------------ */

/* Takes the locks and gives the state, NULL (and no lock) when there is no valid state file. */
const struct board *board_lock(void);
void board_unlock(void);

/* The state file, open for reading; valid where board_lock gave a state. */
int board_file(void);

/* Whether this process is in a container: it has no writable view of the file (see board.c). */
bool board_is_in_container(void);

/* Overwrites part of the state; needs a writable view of the file (see board.c). */
int board_write(const void *field, const void *value, size_t length);

/* Changes one chip while nobody else reads or writes the board: change() gets the present state and
 * a copy of the chip, which is written if it returns 0. */
typedef int (*board_change)(const struct board *board, struct board_device *device, void *argument);
int board_change_device(int index, board_change change, void *argument);

/* Adds to the counter at this offset of struct board; a process that may not write loses it. */
void board_count(size_t offset, uint32_t number);

/* Waits until the state may have changed, at most timeout_ms (-1: no limit). watch is
 * -1 at first. */
void board_wait(int *watch, int timeout_ms);

/* The folder with the device nodes. */
const char *board_dev_folder(const struct board *board);

/* --- cards.c: what dcmi_init saw; valid between board_lock and board_unlock ------------------- */

/* One chip as this process numbers it; the position in the snapshot is the logic id. */
struct slot {
    int index; /* into board.devices */
    int card_id;
    int device_id;
    int physical_id;
    uint32_t vnpu; /* its id, where this container has a partition of the chip; 0: the whole chip */
    bool failed; /* it did not answer dcmi_init */
    bool lost;   /* its card did not either: listed as -1, but the chip keeps its logic id */
};

struct snapshot {
    bool ready;
    int count;
    struct slot slots[BOARD_DEVICES];
};

struct snapshot *cards(void);
int cards_refresh(const struct board *board);
const struct slot *cards_find(int card_id, int device_id);

/* The first chip of a card, for calls about the card as a whole. */
const struct slot *cards_first(int card_id);

/* Chips per card by the board's design: a container may see only the second die of a card. */
bool cards_is_vnpu(int card_id);
int cards_chips(const struct board *board, int card_id);

/* Whether this is the card's MCU, which comes after its chips. Locks by itself. */
bool cards_has_mcu(int card_id, int device_id);

/* --- calls.c: the start of every call --------------------------------------------------------- */

/* Gives the calls of this thread another name until the next call_as(NULL): that of the function
 * that was called, where it stands for another one. */
void call_as(const char *function);

/* Delays, hangs or fails the call as a rule of the board says; 0 if the call goes on. A function of
 * the generation that does not serve the board's chips is not supported. */
int obey(const char *function, int physical_id);

/* The same for dcmi_init, beside which no other call may run; always followed by end_init. One of
 * the wrong generation forgets the cards. */
int begin_init(const char *function);
void end_init(void);

/* obey() for a call about one chip, then a copy of that chip, or of the partition of it that this
 * container has; an error when it cannot answer. */
int open_device(const char *function, int card_id, int device_id, struct board_device *device);

/* The same for a chip that may be silent: found says whether dcmi_init saw it. */
int look_up(const char *function, int card_id, int device_id, struct slot *found,
            struct board_device *device);

/* 0 if a chip that look_up found answers this call, otherwise the error. */
int check_presence(const char *function, const struct board_device *device);

/* A copy of the board's own facts; DCMI_NOT_SUPPORT before dcmi_init, though they are filled in. */
int read_facts(struct board_facts *facts);

int open_with_facts(const char *function, int card_id, int device_id, struct board_device *device,
                    struct board_facts *facts);

/* The same for a call with one answer, which must have a place; facts may be NULL. */
int open_to_answer(const char *function, int card_id, int device_id, const void *answer,
                   struct board_device *device, struct board_facts *facts);

void put_text(char *out, size_t size, const char *text);

#endif
