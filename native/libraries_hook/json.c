#include "json.h"

#include <string.h>

static const struct json NOTHING = {NULL, NULL};

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r'))
        at++;
    return at;
}

/* What follows the string that begins here; NULL if it does not end. */
static const char *skip_string(const char *at, const char *end)
{
    for (at++; at < end; at++) {
        if (*at == '\\')
            at++;
        else if (*at == '"')
            return at + 1;
    }
    return NULL;
}

/* What follows the value that begins here; NULL if it does not end. */
static const char *skip_value(const char *at, const char *end)
{
    size_t depth = 0;

    while (at < end) {
        if (*at == '"') {
            at = skip_string(at, end);
            if (at == NULL || depth == 0)
                return at;
            continue;
        }
        if (*at == '{' || *at == '[') {
            depth++;
        } else if (*at == '}' || *at == ']') {
            if (depth == 0)
                return at; /* of a number, true, false or null before it */
            if (--depth == 0)
                return at + 1;
        } else if (*at == ',' && depth == 0) {
            return at;
        }
        at++;
    }
    return NULL;
}

struct json json_text(const char *text, size_t length)
{
    return (struct json){skip_space(text, text + length), text + length};
}

struct json json_member(struct json object, const char *name)
{
    const char *at = object.at, *end = object.end;
    size_t length = strlen(name);

    if (at == NULL || at >= end || *at != '{')
        return NOTHING;
    at++;
    for (;;) {
        at = skip_space(at, end);
        if (at >= end || *at != '"')
            return NOTHING;
        const char *key = at + 1;
        at = skip_string(at, end);
        if (at == NULL)
            return NOTHING;
        bool is_it = (size_t)(at - 1 - key) == length && memcmp(key, name, length) == 0;
        at = skip_space(at, end);
        if (at >= end || *at != ':')
            return NOTHING;
        at = skip_space(at + 1, end);
        if (is_it)
            return at < end ? (struct json){at, end} : NOTHING;
        at = skip_value(at, end);
        if (at == NULL)
            return NOTHING;
        at = skip_space(at, end);
        if (at >= end || *at != ',')
            return NOTHING;
        at++;
    }
}

static int hex(char digit)
{
    const char *digits = "0123456789abcdef";
    char lower = digit >= 'A' && digit <= 'F' ? (char)(digit + 32) : digit;
    const char *found = digit ? strchr(digits, lower) : NULL;

    return found ? (int)(found - digits) : -1;
}

/* The character of the escape whose backslash is before *at; 0 if no path has it. */
static char unescaped(const char **at, const char *end)
{
    char kind = **at;

    if (kind == '"' || kind == '\\' || kind == '/') {
        *at += 1;
        return kind;
    }
    if (kind != 'u' || end - *at < 5)
        return 0;
    int high = hex((*at)[3]), low = hex((*at)[4]);
    if ((*at)[1] != '0' || (*at)[2] != '0' || high < 0 || high > 7 || low < 0)
        return 0;
    *at += 5;
    return (char)(high * 16 + low);
}

bool json_string(struct json value, char *copy, size_t size)
{
    const char *at = value.at;
    size_t length = 0;

    if (at == NULL || at >= value.end || *at != '"')
        return false;
    for (at++; at < value.end && length < size;) {
        char character = *at++;
        if (character == '"') {
            copy[length] = 0;
            return true;
        }
        if (character == '\\' && at < value.end)
            character = unescaped(&at, value.end);
        if (character == 0)
            return false;
        copy[length++] = character;
    }
    return false;
}
