/* Access to the state file and to the cards that dcmi_init saw. */
#ifndef SIMULATOR_BOARD_H
#define SIMULATOR_BOARD_H

#include <stdbool.h>

#include "dcmi_abi.h"
#include "state.h"

/* One chip as this process numbers it; the position in the snapshot is the logic id. */
struct slot {
    int index; /* into board.devices */
    int card_id;
    int device_id;
    int physical_id;
    bool silent; /* its card is listed as -1 */
};

struct snapshot {
    bool ready;
    int count;
    struct slot slots[BOARD_DEVICES];
};

/* Takes the locks and gives the state, NULL (and no lock) when there is no valid state file. */
const struct board *board_lock(void);
void board_unlock(void);

/* Overwrites part of the state; needs a writable view of the file (see board.c). */
int board_write(const void *field, const void *value, size_t length);

/* Waits until the state may have changed, at most timeout_ms (-1: no limit). watch is
 * -1 at first. */
void board_wait(int *watch, int timeout_ms);

/* Valid between board_lock and board_unlock. */
struct snapshot *cards(void);
int cards_refresh(const struct board *board);
const struct slot *cards_find(int card_id, int device_id);

/* Delays, hangs or fails the call as a rule of the board says; 0 when it is to go on. */
int obey(const char *function, int physical_id);

/* obey() for a call about one chip, then a copy of that chip; an error when it cannot answer. */
int open_device(const char *function, int card_id, int device_id, struct board_device *device);

/* The same for a chip that need not answer: found says whether dcmi_init saw it. */
int look_up(const char *function, int card_id, int device_id, struct slot *found,
            struct board_device *device);

/* A copy of the board's own facts; DCMI_NOT_SUPPORT before dcmi_init, though they are filled in. */
int read_facts(struct board_facts *facts);

int open_with_facts(const char *function, int card_id, int device_id, struct board_device *device,
                    struct board_facts *facts);

void put_text(char *out, size_t size, const char *text);

#endif
