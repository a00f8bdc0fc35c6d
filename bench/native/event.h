/* The bytes that stub and load agree on: SSE events of 250 bytes, and the JSON reply. */
#ifndef EVENT_H
#define EVENT_H
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define EVENT_BYTES 250
#define EVENT_HEAD "data: {\"object\":\"chat.completion.chunk\",\"i\":\"%08x\",\"t\":\"%016llx\"," \
                   "\"choices\":[{\"index\":0,\"delta\":{\"content\":\""
#define EVENT_TAIL "\"}}]}\n\n"
#define EVENT_INDEX_AT 45
#define EVENT_TIME_AT 60
#define DONE_EVENT "data: [DONE]\n\n"
#define REPLY_HEAD "{\"object\":\"chat.completion\",\"text\":\""
#define REPLY_TAIL "\"}"

static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static inline void put_hex(char *out, uint64_t value, int digits) {
    while (digits--) { out[digits] = "0123456789abcdef"[value & 15]; value >>= 4; }
}

static inline uint64_t get_hex(const char *in, int digits) {
    uint64_t value = 0;
    while (digits--) {
        char c = *in++;
        value = value << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return value;
}

/* An event with index and time zero; the caller fills both in with put_hex. */
static inline void event_template(char *out) {
    char head[EVENT_BYTES];
    size_t n = (size_t)snprintf(head, sizeof head, EVENT_HEAD, 0u, 0ull), tail = strlen(EVENT_TAIL);
    memset(out, 'x', EVENT_BYTES);
    memcpy(out, head, n);
    memcpy(out + EVENT_BYTES - tail, EVENT_TAIL, tail);
}
#endif
