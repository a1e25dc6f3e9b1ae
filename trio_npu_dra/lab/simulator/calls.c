/* The start of every call: the rules that tests set, the chip of the call, the facts. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "board.h"
#include "vnpu.h"

/* Calls of this process that a rule holds up now; the rest of a call is short. */
static atomic_int calls_out;
static atomic_int inits_out;

static _Thread_local const char *called_as;

void call_as(const char *function)
{
    called_as = function;
}

static const char *name_of(const char *function)
{
    return called_as != NULL ? called_as : function;
}

/* 0 if the function is of the generation that serves the board's chips. */
static int check_generation(const char *function)
{
    const struct board *board = board_lock();
    if (board == NULL) {
        return DCMI_OK; /* the call itself says so */
    }
    bool is_second = strncmp(function, "dcmiv2_", strlen("dcmiv2_")) == 0;
    bool serves = is_second == (board->facts.generation == 2);
    board_unlock();
    return serves ? DCMI_OK : DCMI_NOT_SUPPORT;
}

/* --- rules ----------------------------------------------------------------------------------- */

static bool applies(const struct board_rule *rule, const char *function, int physical_id)
{
    return rule->active != 0 &&
           (strcmp(rule->function, "*") == 0 || strcmp(rule->function, function) == 0) &&
           (rule->physical_id == -1 || rule->physical_id == physical_id);
}

static bool find_rule(const char *function, int physical_id, struct board_rule *found)
{
    const struct board *board = board_lock();
    bool hit = false;
    for (int i = 0; board != NULL && !hit && i < BOARD_RULES; i++) {
        hit = board->rules[i].answers == 0 && applies(&board->rules[i], function, physical_id);
        if (hit) {
            *found = board->rules[i];
        }
    }
    if (board != NULL) {
        board_unlock();
    }
    return hit;
}

/* Whether the chip answers this call while it boots. */
static bool answers(const char *function, int physical_id)
{
    const struct board *board = board_lock();
    bool hit = false;
    for (int i = 0; board != NULL && !hit && i < BOARD_RULES; i++) {
        hit = board->rules[i].answers != 0 && applies(&board->rules[i], function, physical_id);
    }
    if (board != NULL) {
        board_unlock();
    }
    return hit;
}

static void sleep_ms(unsigned milliseconds)
{
    struct timespec left = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000L};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static void enter_library(void);
static void leave_library(void);

static int follow_rules(const char *function, int physical_id, bool is_init)
{
    struct board_rule rule;
    if (!find_rule(function, physical_id, &rule)) {
        return DCMI_OK;
    }
    sleep_ms(rule.delay_ms);
    if (rule.hang == 0) {
        return rule.code;
    }
    if (!is_init) {
        leave_library(); /* it is stuck in the kernel, and reads no table */
    }
    bool found = true;
    while (found && rule.hang != 0) {
        sleep_ms(1);
        found = find_rule(function, physical_id, &rule);
    }
    if (!is_init) {
        enter_library();
    }
    return found ? rule.code : DCMI_OK;
}

/* --- dcmi_init and the others ---------------------------------------------------------------- */

static void count_call_beside_init(void)
{
    board_count(offsetof(struct board, calls_beside_init), 1);
}

static void enter_library(void)
{
    atomic_fetch_add(&calls_out, 1);
    if (atomic_load(&inits_out) > 0) {
        count_call_beside_init();
    }
}

static void leave_library(void)
{
    atomic_fetch_sub(&calls_out, 1);
}

int obey(const char *function, int physical_id)
{
    enter_library();
    function = name_of(function);
    int code = follow_rules(function, physical_id, false);
    leave_library();
    return code != DCMI_OK ? code : check_generation(function);
}

int begin_init(const char *function)
{
    int inits = atomic_fetch_add(&inits_out, 1);
    if (inits > 0 || atomic_load(&calls_out) > 0) {
        count_call_beside_init();
    }
    function = name_of(function);
    int code = follow_rules(function, -1, true);
    if (code == DCMI_OK && (code = check_generation(function)) != DCMI_OK) {
        cards()->ready = false;
    }
    return code;
}

void end_init(void)
{
    atomic_fetch_sub(&inits_out, 1);
}

/* --- the chip and the board ------------------------------------------------------------------- */

int look_up(const char *function, int card_id, int device_id, struct slot *found,
            struct board_device *device)
{
    const struct board *board = board_lock();
    if (board == NULL) {
        return DCMI_INNER_ERR;
    }
    const struct slot *slot = cards_find(card_id, device_id);
    bool ready = cards()->ready, listed = slot != NULL;
    if (listed) {
        *found = *slot;
    }
    board_unlock();
    int code = obey(function, listed ? found->physical_id : -1);
    if (code != DCMI_OK) {
        return code;
    }
    if (!ready) {
        return DCMI_NOT_SUPPORT;
    }
    if (!listed) {
        return DCMI_UNLISTED;
    }
    board = board_lock();
    *device = board->devices[found->index];
    code = found->vnpu == 0 ? DCMI_OK : vnpu_narrow(&board->facts, device, found->vnpu);
    board_unlock();
    return code;
}

int check_presence(const char *function, const struct board_device *device)
{
    switch (device->presence) {
    case PRESENT:
        return DCMI_OK;
    case GONE:
        return DCMI_DEVICE_NOT_EXIST;
    default:
        return answers(name_of(function), (int)device->physical_id) ? DCMI_OK : DCMI_NOT_READY;
    }
}

int open_device(const char *function, int card_id, int device_id, struct board_device *device)
{
    struct slot slot;
    int code = look_up(function, card_id, device_id, &slot, device);
    return code != DCMI_OK ? code : check_presence(function, device);
}

int read_facts(struct board_facts *facts)
{
    const struct board *board = board_lock();
    if (board == NULL) {
        return DCMI_INNER_ERR;
    }
    *facts = board->facts;
    bool ready = cards()->ready;
    board_unlock();
    return ready ? DCMI_OK : DCMI_NOT_SUPPORT;
}

int open_with_facts(const char *function, int card_id, int device_id, struct board_device *device,
                    struct board_facts *facts)
{
    int code = open_device(function, card_id, device_id, device);
    return code != DCMI_OK ? code : read_facts(facts);
}

int open_to_answer(const char *function, int card_id, int device_id, const void *answer,
                   struct board_device *device, struct board_facts *facts)
{
    int code = open_device(function, card_id, device_id, device);
    if (code == DCMI_OK && facts != NULL) {
        code = read_facts(facts);
    }
    return code == DCMI_OK && answer == NULL ? DCMI_INVALID_PARAMETER : code;
}

void put_text(char *out, size_t size, const char *text)
{
    if (size > 0) {
        snprintf(out, size, "%s", text);
    }
}
