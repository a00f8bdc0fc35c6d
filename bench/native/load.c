/* A load generator that checks every answer: closed loop, epoll, one thread, 127.0.0.1 only.
 *
 *   load --port P [--connections C] [--seconds T] [--warmup W] [--requests N] [--body BYTES] [--sessions N]
 *        [--stream 1 --chunks N --rate R] [--reply BYTES] [--drain SECONDS] [--watch PID,PID]
 *
 * Each connection sends its next request when the answer before it is complete. --requests bounds their number
 * (0: none), --sessions N rotates N ids in X-Session-Id (0: no header). The window opens after the warm-up (with
 * streams: counted from when each has its first event) and lasts T seconds; --drain lets open answers end. Processor
 * time of the processes named by --watch is read as the window opens and closes, their memory as it closes.
 * Prints one JSON object. In the window: requests (complete answers), chunks, cpu_us, delay_us (write of an event
 * to its arrival). From the start with --stream, else in the window: latency_us, ttfb_us.
 */
#define _GNU_SOURCE
#include "event.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define SAMPLES (1 << 20)
#define MAX_ERRORS 1000        /* give up beyond: reconnecting for ever to a dead proxy measures nothing */

enum state { IDLE, WAIT_HEAD, WAIT_BODY };
enum framing { LENGTH, CHUNKED, UNTIL_CLOSE };
enum piece { SIZE, EXTENSION, DATA, DATA_END, TRAILER };
enum error { E_CONNECT, E_STATUS, E_CUT, E_LENGTH, E_CONTENT, E_UNFINISHED, ERRORS };
static const char *error_names[ERRORS] = {"connect", "status", "cut", "length", "content", "unfinished"};

struct conn {
    int fd, closing, begun, line;
    enum state state;
    enum framing framing;
    enum piece piece;
    uint64_t started, left, body;
    size_t head_len, out_at, out_len, body_at, event_len;
    uint32_t events;
    char last, event[EVENT_BYTES], out[768], head[8192];
};

struct series { uint32_t *v; size_t n; };

static struct { int port, connections, stream; double seconds, warmup, drain;
                long requests, body, sessions, chunks, rate, reply; } opt = {
    .connections = 1, .seconds = 2, .warmup = 0.3, .body = 400, .sessions = 256, .chunks = 200, .reply = 1024};
static struct { long requests, chunks; } total, window;
static long errors[ERRORS], started, reconnects, firsts, busy;
static struct series latency, ttfb, delay;
static char *body, template[EVENT_BYTES];
static int epoll_fd, watched, stopping;
static pid_t watch[4096];

static void sample(struct series *s, uint64_t ns) {
    if (!s->v) s->v = malloc(SAMPLES * sizeof *s->v);
    if (s->n < SAMPLES) s->v[s->n++] = (uint32_t)(ns / 1000);
}

static void conn_open(struct conn *c) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event ev = {EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, {.ptr = c}};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &ev);
    connect(c->fd, (struct sockaddr *)&at, sizeof at);     /* a refusal arrives as EPOLLERR */
}

static void conn_start(struct conn *c) {
    if (stopping || (opt.requests && started >= opt.requests)) { c->state = IDLE; return; }
    char session[64] = "";
    if (opt.sessions) snprintf(session, sizeof session, "X-Session-Id: bench-%07ld\r\n", started % opt.sessions);
    started++;
    busy++;
    c->out_at = c->body_at = c->head_len = c->event_len = 0;
    c->body = 0;
    c->events = 0;
    c->begun = 0;
    c->state = WAIT_HEAD;
    c->out_len = (size_t)snprintf(c->out, sizeof c->out,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: bench/1\r\nAccept: application/json\r\n"
        "Content-Type: application/json\r\nAuthorization: Bearer bench\r\nX-Stainless-Lang: python\r\n%s"
        "Content-Length: %ld\r\n\r\n", opt.port, session, opt.body);
    c->started = now_ns();
}

static void conn_reset(struct conn *c) {
    close(c->fd);
    reconnects++;
    conn_open(c);
}

static void fail(struct conn *c, enum error kind) {
    errors[kind]++;
    busy--;
    c->closing = 1;
    long sum = 0;
    for (int i = 0; i < ERRORS; i++) sum += errors[i];
    if (sum > MAX_ERRORS) stopping = 1;
    c->state = IDLE;
}

static void finish(struct conn *c) {
    uint64_t want = opt.stream ? (uint64_t)opt.chunks * EVENT_BYTES + strlen(DONE_EVENT) : (uint64_t)opt.reply;
    if (c->body != want) { fail(c, E_LENGTH); return; }
    if (!opt.stream && c->last != '}') { fail(c, E_CONTENT); return; }
    sample(&latency, now_ns() - c->started);
    total.requests++;
    busy--;
    c->state = IDLE;
}

/* Body bytes with the framing taken off; -1 when they are not what the stub sends. */
static int take_body(struct conn *c, const char *p, size_t n) {
    if (n && !c->begun) {
        c->begun = 1;
        firsts++;
        sample(&ttfb, now_ns() - c->started);
        if (!opt.stream && *p != '{') return -1;
    }
    c->body += n;
    if (n) c->last = p[n - 1];
    if (!opt.stream) return 0;
    while (n) {
        if (c->events == opt.chunks) return 0;             /* what follows is the [DONE] event, checked by length */
        size_t part = EVENT_BYTES - c->event_len < n ? EVENT_BYTES - c->event_len : n;
        memcpy(c->event + c->event_len, p, part);
        c->event_len += part; p += part; n -= part;
        if (c->event_len < EVENT_BYTES) return 0;
        char *e = c->event;
        uint64_t index = get_hex(e + EVENT_INDEX_AT, 8), sent = get_hex(e + EVENT_TIME_AT, 16);
        put_hex(e + EVENT_INDEX_AT, 0, 8);
        put_hex(e + EVENT_TIME_AT, 0, 16);
        if (index != c->events || memcmp(e, template, EVENT_BYTES)) return -1;
        sample(&delay, now_ns() - sent);
        c->events++;
        c->event_len = 0;
        total.chunks++;
    }
    return 0;
}

/* Chunked framing; 1 at its end, 0 for more to come, -1 when it or the content is wrong. */
static int take_chunks(struct conn *c, const char *p, size_t n) {
    while (n) {
        if (c->piece == DATA) {
            size_t part = c->left < n ? (size_t)c->left : n;
            if (take_body(c, p, part)) return -1;
            c->left -= part; p += part; n -= part;
            if (!c->left) c->piece = DATA_END;
            continue;
        }
        char b = *p++;
        n--;
        if (c->piece == SIZE || c->piece == EXTENSION) {
            if (b == '\n') { c->line = 0; c->piece = c->left ? DATA : TRAILER; }
            else if (b == ';' || b == '\r') c->piece = EXTENSION;
            else if (c->piece == SIZE) {
                int digit = b >= '0' && b <= '9' ? b - '0' : (b | 32) >= 'a' && (b | 32) <= 'f' ? (b | 32) - 'a' + 10 : -1;
                if (digit < 0) return -1;
                c->left = c->left * 16 + (uint64_t)digit;
            }
        } else if (c->piece == DATA_END) {
            if (b == '\n') { c->piece = SIZE; c->left = 0; }
            else if (b != '\r') return -1;
        } else if (b == '\n') {
            if (!c->line) return 1;
            c->line = 0;
        } else if (b != '\r') c->line++;
    }
    return 0;
}

static int take(struct conn *c, const char *p, size_t n) {
    if (c->framing == CHUNKED) return take_chunks(c, p, n);
    if (c->framing == LENGTH && n > c->left) return -1;
    c->left -= c->framing == LENGTH ? n : 0;
    return take_body(c, p, n) ? -1 : c->framing == LENGTH && !c->left;
}

/* The head once it is complete; returns the number of body bytes that came with it, or -1. */
static long take_head(struct conn *c) {
    c->head[c->head_len] = 0;
    char *end = strstr(c->head, "\r\n\r\n");
    if (!end) return c->head_len == sizeof c->head - 1 ? -1 : -2;
    long rest = (long)(c->head_len - (size_t)(end + 4 - c->head));
    char *at = (*end = 0, strcasestr(c->head, "\r\ncontent-length:"));
    if (strncmp(c->head, "HTTP/1.1 200", 12)) return -1;
    c->left = at ? strtoull(at + 17, NULL, 10) : 0;
    c->framing = at ? LENGTH : strcasestr(c->head, "\r\ntransfer-encoding: chunked") ? CHUNKED : UNTIL_CLOSE;
    c->piece = SIZE;
    c->closing = c->framing == UNTIL_CLOSE || strcasestr(c->head, "\r\nconnection: close");
    c->state = WAIT_BODY;
    memmove(c->head, end + 4, (size_t)rest);
    return rest;
}

static void bytes(struct conn *c, const char *p, size_t n) {
    int done = 0;
    if (c->state == IDLE) { if (!c->closing) { busy++; fail(c, E_LENGTH); } return; }
    if (c->state == WAIT_HEAD) {
        size_t room = sizeof c->head - 1 - c->head_len, part = n < room ? n : room;
        memcpy(c->head + c->head_len, p, part);
        c->head_len += part;
        long rest = take_head(c);
        if (rest == -2) return;
        if (rest == -1) { fail(c, E_STATUS); return; }
        done = take(c, c->head, (size_t)rest);
        p += part; n -= part;
    }
    if (!done && n) done = take(c, p, n);
    if (done < 0) fail(c, E_CONTENT);
    else if (done) finish(c);
}

/* Send what is left of the request. */
static void pump(struct conn *c) {
    while (c->state != IDLE && (c->out_at < c->out_len || c->body_at < (size_t)opt.body)) {
        struct iovec iov[2] = {{c->out + c->out_at, c->out_len - c->out_at},
                               {body + c->body_at, (size_t)opt.body - c->body_at}};
        ssize_t n = writev(c->fd, iov, 2);
        if (n < 0) return;                                 /* full, or gone: the read side tells */
        size_t part = (size_t)n < iov[0].iov_len ? (size_t)n : iov[0].iov_len;
        c->out_at += part;
        c->body_at += (size_t)n - part;
    }
}

static void lost(struct conn *c) {
    if (c->state == WAIT_BODY && c->framing == UNTIL_CLOSE) finish(c);
    else if (c->state != IDLE) fail(c, c->head_len || c->state == WAIT_BODY ? E_CUT : E_CONNECT);
    c->closing = 1;
}

static void serve(struct conn *c, uint32_t events) {
    static char buffer[1 << 18];
    if (events & EPOLLOUT) pump(c);
    if (!(events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))) return;
    for (;;) {
        ssize_t n = read(c->fd, buffer, sizeof buffer);
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) lost(c);
        else bytes(c, buffer, (size_t)n);
        if (c->state != IDLE) continue;
        int closing = c->closing;
        c->closing = 0;
        conn_start(c);
        if (closing && c->state == IDLE) { close(c->fd); c->fd = -1; return; }
        if (closing) { conn_reset(c); return; }            /* the new socket's EPOLLOUT sends the request */
        pump(c);
        if (c->state == IDLE) return;
    }
}

static uint64_t cpu_ns(void) {
    uint64_t sum = 0;
    struct timespec t;
    for (int i = 0; i < watched; i++)                      /* the clock that clock_getcpuclockid(3) would name */
        if (!clock_gettime((clockid_t)(((unsigned)~watch[i] << 3) | 2), &t))
            sum += (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
    return sum;
}

static long rss_kb(void) {
    long sum = 0, pages;
    for (int i = 0; i < watched; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/statm", (int)watch[i]);
        FILE *f = fopen(path, "r");
        if (f && fscanf(f, "%*d %ld", &pages) == 1) sum += pages * (sysconf(_SC_PAGESIZE) / 1024);
        if (f) fclose(f);
    }
    return sum;
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void print_series(const char *name, struct series *s) {
    if (!s->n) { printf("\"%s\": null, ", name); return; }
    qsort(s->v, s->n, sizeof *s->v, ascending);
    printf("\"%s\": {\"p50\": %u, \"p99\": %u, \"max\": %u}, ", name, s->v[s->n / 2], s->v[s->n * 99 / 100], s->v[s->n - 1]);
}

static int options(int argc, char **argv) {
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) { fprintf(stderr, "load: %s wants a value; load.c begins with the flags\n", argv[i]); return 2; }
        const char *flag = argv[i], *value = argv[i + 1];
        if (!strcmp(flag, "--port")) opt.port = atoi(value);
        else if (!strcmp(flag, "--connections")) opt.connections = atoi(value);
        else if (!strcmp(flag, "--seconds")) opt.seconds = atof(value);
        else if (!strcmp(flag, "--warmup")) opt.warmup = atof(value);
        else if (!strcmp(flag, "--drain")) opt.drain = atof(value);
        else if (!strcmp(flag, "--requests")) opt.requests = atol(value);
        else if (!strcmp(flag, "--body")) opt.body = atol(value);
        else if (!strcmp(flag, "--sessions")) opt.sessions = atol(value);
        else if (!strcmp(flag, "--stream")) opt.stream = atoi(value);
        else if (!strcmp(flag, "--chunks")) opt.chunks = atol(value);
        else if (!strcmp(flag, "--rate")) opt.rate = atol(value);
        else if (!strcmp(flag, "--reply")) opt.reply = atol(value);
        else if (!strcmp(flag, "--watch")) {
            char *list = strdup(value);
            for (char *pid = strtok(list, ","); pid && watched < 4096; pid = strtok(NULL, ",")) watch[watched++] = atoi(pid);
        } else { fprintf(stderr, "load: unknown flag %s\n", flag); return 2; }
    }
    if (!opt.port) { fprintf(stderr, "load: --port is needed\n"); return 2; }
    return 0;
}

static void make_body(void) {
    char head[256];
    const char *tail = "\"}]}";
    int n = snprintf(head, sizeof head, "{\"model\":\"bench\",\"stream\":%s,\"max_tokens\":%ld,\"seed\":%ld,"
                     "\"messages\":[{\"role\":\"user\",\"content\":\"", opt.stream ? "true" : "false", opt.chunks, opt.rate);
    if (opt.body < n + 4) opt.body = n + 4;
    body = malloc((size_t)opt.body);
    memset(body, 'y', (size_t)opt.body);
    memcpy(body, head, (size_t)n);
    memcpy(body + opt.body - 4, tail, 4);
}

/* Run to the end of the window and of the drain; returns the window's seconds, processor and memory. */
static void run(double *seconds, double *cpu_us, long *rss) {
    uint64_t begin = now_ns(), ready = opt.stream ? 0 : begin, opened = 0, cpu = 0, closed = 0;
    for (;;) {
        struct epoll_event events[512];
        int n = epoll_wait(epoll_fd, events, 512, 2);
        for (int i = 0; i < n; i++) serve(events[i].data.ptr, events[i].events);
        uint64_t now = now_ns();
        if (!ready && firsts >= opt.connections) ready = now;
        int warm = ready && (double)(now - ready) / 1e9 >= opt.warmup;
        int over = stopping || (opt.requests && !busy && started >= opt.requests);
        if (!opened && (warm || over || (double)(now - begin) / 1e9 > opt.warmup + 20)) {
            if (!opt.stream && opt.warmup > 0) latency.n = ttfb.n = 0;
            delay.n = 0;
            if (opt.warmup > 0) window.requests = total.requests, window.chunks = total.chunks;
            if (!warm && !over) errors[E_UNFINISHED] += opt.connections - firsts;
            opened = opt.warmup > 0 ? now : begin;
            cpu = cpu_ns();
        }
        if (opened && !closed && (over || (double)(now - opened) / 1e9 >= opt.seconds)) {
            *cpu_us = (double)(cpu_ns() - cpu) / 1e3;
            *rss = rss_kb();
            *seconds = (double)(now - opened) / 1e9;
            window.requests = total.requests - window.requests;
            window.chunks = total.chunks - window.chunks;
            closed = now;
            stopping = 1;
        }
        if (closed && (!opt.drain || !busy || (double)(now - closed) / 1e9 >= opt.drain)) break;
    }
    if (opt.drain) errors[E_UNFINISHED] += busy;
}

int main(int argc, char **argv) {
    double seconds = 0, cpu_us = 0;
    long rss = 0, sum = 0;
    if (options(argc, argv)) return 2;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGPIPE, SIG_IGN);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    event_template(template);
    make_body();
    epoll_fd = epoll_create1(0);
    struct conn *conns = calloc((size_t)opt.connections, sizeof *conns);
    for (int i = 0; i < opt.connections; i++) { conn_start(&conns[i]); conn_open(&conns[i]); }
    run(&seconds, &cpu_us, &rss);
    for (int i = 0; i < ERRORS; i++) sum += errors[i];
    printf("{\"requests\": %ld, \"chunks\": %ld, \"seconds\": %.6f, \"cpu_us\": %.1f, \"rss_kb\": %ld, ",
           window.requests, window.chunks, seconds, cpu_us, rss);
    print_series("latency_us", &latency);
    print_series("ttfb_us", &ttfb);
    print_series("delay_us", &delay);
    printf("\"complete\": %ld, \"reconnects\": %ld, \"errors\": %ld, \"error_kinds\": {", total.requests, reconnects, sum);
    for (int i = 0; i < ERRORS; i++) printf("%s\"%s\": %ld", i ? ", " : "", error_names[i], errors[i]);
    printf("}}\n");
    return 0;
}
