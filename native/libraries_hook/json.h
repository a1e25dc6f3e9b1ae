/* Finds strings in JSON that a container runtime wrote. */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stddef.h>

struct json {
    const char *at;  /* the first byte of a value; NULL if there is none */
    const char *end; /* where the text ends */
};

struct json json_text(const char *text, size_t length);

/* The value of a member of an object; `at` is NULL if it is no object or has no such member. */
struct json json_member(struct json object, const char *name);

/* Copies a string value, at most size bytes with its zero. Says no to anything else, and to
 * characters that no path of a runtime has (above ASCII only as UTF-8, never as \u escapes). */
bool json_string(struct json value, char *copy, size_t size);

#endif
