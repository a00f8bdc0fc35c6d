/* A replica that costs almost nothing: answers every POST under /v1/ at once, by epoll, in one thread.
 *
 *   stub [--ports N] [--port P] [--reply BYTES]
 *
 * Prints {"ports": [...]} once it listens (127.0.0.1 only), then serves until SIGTERM or until its parent ends.
 * A body with "stream":true is answered by "max_tokens" (or "max_completion_tokens") SSE events at "seed" events
 * per second (0: flat out), one write per event; any other by a JSON reply of BYTES. Parameters travel in fields
 * that routers pass on.
 */
#define _GNU_SOURCE
#include "event.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define KEEP 65536             /* bytes of head and body that are looked at; the rest of a body is only counted */
#define BURST 16               /* events one late stream may catch up with per turn */
#define FILL (1 << 20)

enum state { HEAD, BODY, ANSWER, STREAM };

struct conn {
    int fd, slot;              /* slot: place in the list of streams, -1 when it is not one */
    enum state state;
    int blocked;
    size_t have, head_len, body_left;
    uint32_t count, sent;
    uint64_t period, due;
    char out[512];
    size_t out_at, out_len, fill_left, tail_left;
    char in[KEEP];
};

static char filler[FILL], template[EVENT_BYTES];
static size_t reply_bytes = 1024;
static struct conn **streams;
static int stream_count, stream_room, epoll_fd;
static struct { long requests, aborted, open; } stats;
static uint64_t jitter;

static void stream_add(struct conn *c) {
    if (stream_count == stream_room) {
        stream_room = stream_room ? 2 * stream_room : 256;
        streams = realloc(streams, (size_t)stream_room * sizeof *streams);
    }
    c->slot = stream_count;
    streams[stream_count++] = c;
}

static void stream_remove(struct conn *c) {
    streams[c->slot] = streams[--stream_count];
    streams[c->slot]->slot = c->slot;
    c->slot = -1;
}

static void conn_close(struct conn *c) {
    if (c->state == ANSWER || c->state == STREAM) stats.aborted++;
    if (c->slot >= 0) stream_remove(c);
    close(c->fd);
    stats.open--;
    c->fd = -1;                /* freed by the caller, once no event of this turn names it */
}

/* Write what is pending. 1: all written, 0: the socket is full, -1: the peer is gone. */
static int pump(struct conn *c) {
    static const char *tail = REPLY_TAIL;
    size_t tail_bytes = strlen(tail);
    while (c->out_at < c->out_len || c->fill_left || c->tail_left) {
        size_t fill = c->fill_left < FILL ? c->fill_left : FILL;
        struct iovec iov[3] = {{c->out + c->out_at, c->out_len - c->out_at}, {filler, fill},
                               {(char *)tail + tail_bytes - c->tail_left, c->tail_left}};
        ssize_t n = writev(c->fd, iov, fill == c->fill_left ? 3 : 2);
        if (n < 0) {
            if (errno == EINTR) continue;
            if (errno != EAGAIN) return -1;
            c->blocked = 1;
            return 0;
        }
        size_t left = (size_t)n, part = left < iov[0].iov_len ? left : iov[0].iov_len;
        c->out_at += part; left -= part;
        part = left < c->fill_left ? left : c->fill_left;
        c->fill_left -= part; left -= part;
        c->tail_left -= left;
    }
    return 1;
}

static unsigned long field(const char *text, const char *name, unsigned long fallback) {
    const char *at = strstr(text, name);
    if (!at) return fallback;
    at += strlen(name);
    while (*at == ' ' || *at == ':') at++;
    return strtoul(at, NULL, 10);
}

static void answer_json(struct conn *c, const char *status, const char *body, size_t fill) {
    size_t tail = fill ? strlen(REPLY_TAIL) : 0;
    c->out_len = (size_t)snprintf(c->out, sizeof c->out,
        "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
        status, strlen(body) + fill + tail, body);
    c->fill_left = fill;
    c->tail_left = tail;
    c->state = ANSWER;
}

static void answer_stream(struct conn *c, const char *body) {
    unsigned long rate = field(body, "\"seed\"", 0);
    c->count = (uint32_t)field(body, "\"max_tokens\"", field(body, "\"max_completion_tokens\"", 16));
    c->sent = 0;
    c->period = rate ? 1000000000ull / rate : 0;
    jitter = jitter * 6364136223846793005ull + 1442695040888963407ull;
    c->due = 0;                /* the first event follows the head at once, the second is put out of step */
    c->out_len = (size_t)snprintf(c->out, sizeof c->out,
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
        "Transfer-Encoding: chunked\r\n\r\n");
    c->state = STREAM;
    stream_add(c);
}

/* Decide the answer to the request whose head and (kept part of the) body lie in c->in. */
static void answer(struct conn *c) {
    char *body = c->in + c->head_len, held = c->in[c->have];
    c->in[c->have] = 0;
    c->out_at = 0;
    stats.requests++;
    if (!strncmp(c->in, "POST /v1/", 9)) {
        if (strstr(body, "\"stream\":true") || strstr(body, "\"stream\": true")) answer_stream(c, body);
        else answer_json(c, "200 OK", REPLY_HEAD, reply_bytes - strlen(REPLY_HEAD) - strlen(REPLY_TAIL));
    } else if (!strncmp(c->in, "GET /health", 11)) {
        answer_json(c, "200 OK", "{\"status\":\"ok\"}", 0);
    } else if (!strncmp(c->in, "GET /v1/models", 14)) {
        answer_json(c, "200 OK", "{\"object\":\"list\",\"data\":[{\"id\":\"bench\",\"object\":\"model\"}]}", 0);
    } else if (!strncmp(c->in, "GET /stats", 10)) {
        char text[128];
        snprintf(text, sizeof text, "{\"requests\": %ld, \"open\": %ld, \"streams\": %d, \"aborted\": %ld}",
                 stats.requests, stats.open, stream_count, stats.aborted);
        answer_json(c, "200 OK", text, 0);
    } else {
        answer_json(c, "404 Not Found", "{\"error\":{\"message\":\"not here\"}}", 0);
    }
    c->in[c->have] = held;
}

static void await_request(struct conn *c) {
    c->state = HEAD;
    c->have = c->head_len = c->body_left = 0;
}

/* Events that are due on one stream; -1 when the peer is gone. */
static int advance(struct conn *c, uint64_t now) {
    uint64_t debt = BURST * c->period;                     /* an engine that was held up does not make up for it */
    if (c->due && c->due + debt < now) c->due = now - debt;
    for (int turn = 0; turn < BURST; turn++) {
        int done = pump(c);
        if (done <= 0) return done;
        if (c->sent > c->count) { stream_remove(c); await_request(c); return 0; }
        if (c->due > now) return 0;
        c->out_at = 0;
        if (c->sent == c->count) {
            c->out_len = (size_t)sprintf(c->out, "%zx\r\n%s\r\n0\r\n\r\n", strlen(DONE_EVENT), DONE_EVENT);
        } else {
            size_t n = (size_t)sprintf(c->out, "%x\r\n", EVENT_BYTES);
            memcpy(c->out + n, template, EVENT_BYTES);
            put_hex(c->out + n + EVENT_INDEX_AT, c->sent, 8);
            put_hex(c->out + n + EVENT_TIME_AT, now_ns(), 16);
            memcpy(c->out + n + EVENT_BYTES, "\r\n", 2);
            c->out_len = n + EVENT_BYTES + 2;
        }
        if (c->sent == 0) c->due = now + (c->period ? (jitter >> 16) % c->period : 0);
        c->due += c->period;
        if (++c->sent == c->count) c->due = 0;
    }
    return 0;
}

/* Read until the socket is empty (edge-triggered); -1 when the peer is gone. */
static int readable(struct conn *c) {
    static char spill[1 << 18];
    for (;;) {
        int keep = c->state == HEAD || (c->state == BODY && c->have < KEEP - 1);
        char *into = keep ? c->in + c->have : spill;
        ssize_t n = read(c->fd, into, keep ? KEEP - 1 - c->have : sizeof spill);
        if (n == 0) return -1;
        if (n < 0) return errno == EAGAIN ? 0 : errno == EINTR ? 1 : -1;
        if (c->state == ANSWER || c->state == STREAM) return -1;      /* nobody here pipelines */
        if (keep) c->have += (size_t)n;
        if (c->state == HEAD) {
            c->in[c->have] = 0;
            char *end = strstr(c->in, "\r\n\r\n");
            if (!end) { if (c->have == KEEP - 1) return -1; continue; }
            c->head_len = (size_t)(end - c->in) + 4;
            char *length = strcasestr(c->in, "\r\ncontent-length:");
            size_t want = length && length < end ? strtoul(length + 17, NULL, 10) : 0;
            size_t got = c->have - c->head_len;
            c->body_left = want > got ? want - got : 0;
            c->state = BODY;
        } else {
            c->body_left -= (size_t)n < c->body_left ? (size_t)n : c->body_left;
        }
        if (c->body_left == 0) {
            answer(c);
            int done = c->state == STREAM ? advance(c, now_ns()) : pump(c);
            if (done < 0) return -1;
            if (done > 0 && c->state == ANSWER) await_request(c);
        }
    }
}

static void accept_all(int listener) {
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        struct conn *c = malloc(sizeof *c);
        memset(c, 0, offsetof(struct conn, in));
        c->fd = fd;
        c->slot = -1;
        stats.open++;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event ev = {EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {.ptr = c}};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev);
    }
}

static int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 4096)) { perror("stub: listen"); exit(1); }
    getsockname(fd, (struct sockaddr *)&at, &len);
    printf("%d", ntohs(at.sin_port));
    return fd;
}

/* One event of one connection: write what waits, then read what came. */
static void serve(struct conn *c, uint32_t events) {
    if (c->fd < 0) return;
    int gone = 0;
    if (events & EPOLLOUT && c->blocked) {
        c->blocked = 0;
        if (c->state == ANSWER) {
            int done = pump(c);
            if (done > 0) await_request(c);
            gone = done < 0;
        }
    }
    if (!gone && events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        while ((gone = readable(c)) > 0) {}
    if (gone) conn_close(c);
}

/* Advance every stream that is due; returns the milliseconds until the next one is. */
static int turn(void) {
    uint64_t now = now_ns(), next = now + 1000000000ull;
    for (int i = stream_count - 1; i >= 0; i--) {
        struct conn *c = streams[i];
        if (c->blocked) continue;
        if (c->due <= now && advance(c, now) < 0) { conn_close(c); free(c); continue; }
        if (c->slot >= 0 && !c->blocked && c->due < next) next = c->due;
    }
    return next <= now ? 0 : (int)((next - now + 999999) / 1000000);
}

int main(int argc, char **argv) {
    int ports = 1, port = 0;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) { fprintf(stderr, "usage: stub [--ports N] [--port P] [--reply BYTES]\n"); return 2; }
        if (!strcmp(argv[i], "--ports")) ports = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--port")) port = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--reply")) reply_bytes = strtoul(argv[i + 1], NULL, 10);
        else { fprintf(stderr, "stub: unknown flag %s\n", argv[i]); return 2; }
    }
    if (reply_bytes < 64) reply_bytes = 64;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGPIPE, SIG_IGN);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    memset(filler, 'x', sizeof filler);
    event_template(template);
    epoll_fd = epoll_create1(0);
    int *listeners = malloc((size_t)ports * sizeof *listeners);
    printf("{\"ports\": [");
    for (int i = 0; i < ports; i++) {
        if (i) printf(", ");
        listeners[i] = listen_on(port ? port + i : 0);
        struct epoll_event ev = {EPOLLIN, {.ptr = &listeners[i]}};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listeners[i], &ev);
    }
    printf("]}\n");
    fflush(stdout);
    for (;;) {
        struct epoll_event events[512];
        int n = epoll_wait(epoll_fd, events, 512, stream_count ? turn() : -1);
        for (int i = 0; i < n; i++) {
            int *listener = events[i].data.ptr;
            if (listener >= listeners && listener < listeners + ports) accept_all(*listener);
            else serve(events[i].data.ptr, events[i].events);
        }
        for (int i = 0; i < n; i++) {
            int *listener = events[i].data.ptr;
            if (listener >= listeners && listener < listeners + ports) continue;
            struct conn *c = events[i].data.ptr;
            if (c->fd < 0) free(c);
        }
    }
}
