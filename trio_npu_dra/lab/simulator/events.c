/* Fault events: subscribed, or fetched one by one. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "board.h"

struct subscription {
    int logic_id; /* -1: every chip this process sees */
    struct dcmi_event_filter filter;
    dcmi_fault_event_callback handler;
    uint64_t next;
    int watch;
};

static pthread_mutex_t event_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct subscription subscribed; /* by dcmi_subscribe_fault_event, once a process */

static bool passes(const struct dcmi_event_filter *filter, const struct board_event *event)
{
    return (!(filter->filter_flag & 1) || filter->event_id == event->code) &&
           (!(filter->filter_flag & 2) || event->severity >= filter->severity) &&
           (!(filter->filter_flag & 4) || filter->node_type == event->node_type);
}

static int logic_id_of(unsigned physical_id)
{
    for (int i = 0; i < cards()->count; i++) {
        if (cards()->slots[i].physical_id == (int)physical_id) {
            return i;
        }
    }
    return -1;
}

static void translate(const struct board_event *event, int logic_id, struct dcmi_event *out)
{
    memset(out, 0, sizeof *out);
    struct dcmi_dms_fault_event *fault = &out->event_t.dms_event;
    fault->event_id = event->code;
    fault->deviceid = (unsigned short)logic_id;
    fault->node_type = (unsigned char)event->node_type;
    fault->severity = (unsigned char)event->severity;
    fault->assertion = (unsigned char)event->assertion;
    fault->event_serial_num = event->serial;
    fault->notify_serial_num = event->serial;
    fault->alarm_raised_time = event->raised_ms;
    snprintf(fault->event_name, sizeof fault->event_name, "deviceid=%d, %s", logic_id, event->name);
    put_text(fault->additional_info, sizeof fault->additional_info, event->additional);
}

/* Moves on to the next event that this subscription wants; false when there is none yet. */
static bool next_event(struct subscription *reader, struct dcmi_event *out)
{
    const struct board *board = board_lock();
    bool found = false;
    if (board == NULL) {
        return false;
    }
    uint64_t oldest = board->next_event > BOARD_EVENTS ? board->next_event - BOARD_EVENTS : 0;
    uint32_t lost = reader->next < oldest ? (uint32_t)(oldest - reader->next) : 0;
    reader->next += lost; /* overwritten, as in the kernel's queue for each process */
    while (!found && reader->next < board->next_event) {
        const struct board_event *event = &board->events[reader->next++ % BOARD_EVENTS];
        int logic_id = logic_id_of(event->physical_id);
        found = logic_id >= 0 && (reader->logic_id == -1 || reader->logic_id == logic_id) &&
                passes(&reader->filter, event);
        if (found) {
            translate(event, logic_id, out);
        }
    }
    board_unlock();
    if (lost > 0) {
        board_count(offsetof(struct board, events_lost), lost);
    }
    return found;
}

static void *deliver_events(void *unused)
{
    struct dcmi_event event;
    (void)unused;
    for (;;) {
        if (next_event(&subscribed, &event)) {
            subscribed.handler(&event);
        } else {
            board_wait(&subscribed.watch, -1);
        }
    }
    return NULL;
}

/* -1, -1 is every chip; else the logic id of one. */
static int target(const char *function, int card_id, int device_id, int *logic_id)
{
    struct board_facts facts;
    struct board_device device;
    struct slot slot;
    *logic_id = -1;
    if (card_id == -1 && device_id == -1) {
        int code = obey(function, -1);
        return code != DCMI_OK ? code : read_facts(&facts);
    }
    int code = look_up(function, card_id, device_id, &slot, &device);
    if (code == DCMI_OK) {
        if (board_lock() == NULL) {
            return DCMI_INNER_ERR;
        }
        *logic_id = logic_id_of((unsigned)slot.physical_id);
        board_unlock();
    }
    return code;
}

static void start_at_now(struct subscription *reader, int logic_id,
                         const struct dcmi_event_filter *filter)
{
    const struct board *board = board_lock();
    if (board == NULL) {
        return;
    }
    reader->logic_id = logic_id;
    reader->filter = *filter;
    reader->next = board->next_event; /* no history: current faults come from errorcode_v2 */
    reader->watch = -1;
    board_unlock();
}

EXPORT int dcmi_subscribe_fault_event(int card_id, int device_id, struct dcmi_event_filter filter,
                                      dcmi_fault_event_callback handler)
{
    pthread_t thread;
    int logic_id;
    int code = target(__func__, card_id, device_id, &logic_id);
    if (code != DCMI_OK) {
        return code;
    }
    if (handler == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    pthread_mutex_lock(&event_mutex);
    if (subscribed.handler != NULL) {
        code = DCMI_RESOURCE_OCCUPIED;
    } else {
        start_at_now(&subscribed, logic_id, &filter);
        subscribed.handler = handler;
        if (pthread_create(&thread, NULL, deliver_events, NULL) == 0) {
            pthread_detach(thread);
        } else {
            subscribed.handler = NULL;
            code = DCMI_INNER_ERR;
        }
    }
    pthread_mutex_unlock(&event_mutex);
    return code;
}

