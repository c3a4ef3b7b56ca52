/* cmd_serve.c - `metrale serve`: loads a model, makes an engine and an App of it, and hands them to the server. */
#include "cli/cli.h"
#include "cli/loader.h"
#include "core/utf8.h"
#include "engine/engine.h"
#include "server/run.h"
#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

/* Descriptors besides those of connections: files, pipes, libraries. */
enum { SPARE_DESCRIPTORS = 64, MAX_HANDLERS = 4096 };

typedef struct Args {
    const char *model, *name;
    Levers levers;
} Args;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    Args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->levers;
        return 0;
    case 'n':
        if (*arg == '\0' || !utf8_valid(arg, strlen(arg)))
            argp_error(state, "--name: \"%s\" is empty or not UTF-8", arg);
        a->name = arg;
        return 0;
    case ARGP_KEY_ARG:
        cli_one_model(state, &a->model, arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The file's or directory's own name, without .gguf; malloc'd, NULL when out of memory. */
static char *name_of(const char *path)
{
    size_t len = strlen(path), from;

    while (len > 1 && path[len - 1] == '/')
        len--;
    for (from = len; from > 0 && path[from - 1] != '/'; from--)
        ;
    if (len - from > 5 && strncmp(path + len - 5, ".gguf", 5) == 0)
        len -= 5;
    return strndup(path + from, len - from);
}

/* A template that does not parse, or none, leaves the other routes working. */
static Status open_chat(App *app, const Loaded *l, ChatTemplate **out, Err *why, Err *err)
{
    const json_t *t = l->chat_template;
    Status st;

    if (!t) {
        log_warn(&l->log, "chat: the checkpoint has no chat template; only /v1/completions answers");
        return ST_OK;
    }
    st = chat_template_new(out, json_string_value(t), json_string_length(t), "chat template", why);
    if (st == ST_NOMEM) {
        *err = *why;
        return st;
    }
    if (st != ST_OK) {
        app->chat_error = why->msg;
        log_warn(&l->log, "chat: %s; only /v1/completions answers", why->msg);
    }
    app->chat = *out;
    return ST_OK;
}

static void take_preset(SamplingParams *s, const SamplingPreset *preset)
{
    sampling_defaults(s);
    s->temperature = (float)preset->temperature;
    s->top_p = (float)preset->top_p;
    s->min_p = (float)preset->min_p;
    s->top_k = (int32_t)preset->top_k;
}

/* Threads for as many requests as may run and wait, and connections for some more. */
static void size_server(HttpOptions *o, const Levers *levers, const Log *log)
{
    int64_t handlers = lever_int(levers, LEVER_QUEUE) + lever_int(levers, LEVER_MAX_SEQS) + 8;
    struct rlimit files;

    o->max_handlers = (unsigned)(handlers < MAX_HANDLERS ? handlers : MAX_HANDLERS);
    if (o->max_connections < o->max_handlers * 2)
        o->max_connections = o->max_handlers * 2;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    if (files.rlim_cur < o->max_connections + SPARE_DESCRIPTORS) {
        rlim_t want = o->max_connections + SPARE_DESCRIPTORS;
        files.rlim_cur = want < files.rlim_max ? want : files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files); /* what it did is read back */
        (void)getrlimit(RLIMIT_NOFILE, &files);
    }
    if (files.rlim_cur < o->max_connections + SPARE_DESCRIPTORS) {
        o->max_connections =
            files.rlim_cur > 2 * SPARE_DESCRIPTORS ? (unsigned)files.rlim_cur - SPARE_DESCRIPTORS : SPARE_DESCRIPTORS;
        log_warn(log, "http: only %u connections at a time; raise the limit of open files (ulimit -n) for more",
                 o->max_connections);
    }
}

typedef struct Ready {
    const Log *log;
    const App *app;
    const char *host;
} Ready;

static void on_ready(void *ctx, uint16_t port)
{
    const Ready *r = ctx;
    bool v6 = strchr(r->host, ':') != NULL;
    Log always = {.out = r->log->out, .min = LOG_INFO}; /* with port 0 nothing else tells the address */

    log_line(&always, LOG_INFO, "ready: %s at http://%s%s%s:%u", r->app->model_id, v6 ? "[" : "", r->host,
             v6 ? "]" : "", port);
}

/* A server whose device is gone can only fail its requests: it ends, so that whoever watches it can start it anew. */
typedef struct Lost {
    StopSignal *stop;
    char why[512];
} Lost;

static void on_lost(void *ctx, const char *why)
{
    Lost *lost = ctx;

    snprintf(lost->why, sizeof lost->why, "%s", why);
    stop_signal_raise(lost->stop);
}

int cmd_serve(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"name", 'n', "NAME", 0, "what the API calls the model; its file's name when left out", 0}, {0}};
    Status st = ST_OK;
    Err err, chat_why;
    Args a = {0};
    Loaded l = {0};
    App app = {0};
    Engine *engine = NULL;
    ChatTemplate *chat = NULL;
    StopSignal *stop = NULL;
    Lost lost = {0};
    HttpOptions http;
    char *name = NULL;
    LoadOptions lo = {.level = LOAD_MODEL, .tokenizer = true};

    levers_init(&a.levers);
    const struct argp_child children[] = {{&a.levers.parser, 0, "Settings:", 1}, {0}};
    const struct argp parser = {options,  parse, "[MODEL]", "Serves a model over HTTP, as OpenAI's API does.",
                                children, NULL,  NULL};
    argp_parse(&parser, argc, argv, 0, NULL, &a);

    signal(SIGPIPE, SIG_IGN); /* a closed log is no reason to end */
    TRY(stop_signal_new(&stop, &err));
    /* A taken port is found before the model is read, which may take long. */
    TRY(levers_environment(&a.levers, environ, &err));
    http_defaults(&http);
    http.host = lever_text(&a.levers, LEVER_HOST);
    http.port = (uint16_t)lever_int(&a.levers, LEVER_PORT);
    TRY(http_probe(&http, &err));
    TRY(loaded_open(&l, a.model ? a.model : "default", &a.levers, &lo, &err));
    name = a.name ? strdup(a.name) : name_of(l.path);
    if (!name)
        TRY(err_set(&err, ST_NOMEM, "out of memory at the start"));
    lost.stop = stop;
    EngineOptions eo = {
        .queue_len = (uint32_t)lever_int(&a.levers, LEVER_QUEUE), .on_lost = on_lost, .lost_ctx = &lost};
    TRY(engine_new(&engine, l.model, clock_system(), &eo, &l.log, &err));

    app.engine = engine;
    app.tokenizer = l.tokenizer;
    app.model_id = name;
    app.clock = clock_system();
    app.started_s = clock_unix_s(app.clock);
    app.max_len = model_max_tokens(l.model);
    app.vocab = model_vocab(l.model);
    app.log = &l.log;
    take_preset(&app.sampling, &l.preset);
    TRY(open_chat(&app, &l, &chat, &chat_why, &err));
    if (getrandom(&app.seed, sizeof app.seed, 0) != sizeof app.seed)
        TRY(err_set(&err, ST_IO, "cannot get random bytes: %s", strerror(errno)));

    http.host = lever_text(&a.levers, LEVER_HOST); /* the class's defaults are known now, too */
    http.port = (uint16_t)lever_int(&a.levers, LEVER_PORT);
    size_server(&http, &a.levers, &l.log);
    levers_log(&a.levers, &l.log);
    log_info(&l.log, "sampling: temperature %g, top_p %g, top_k %d, min_p %g unless a request says otherwise",
             (double)app.sampling.temperature, (double)app.sampling.top_p, app.sampling.top_k,
             (double)app.sampling.min_p);
    Ready ready = {&l.log, &app, http.host};
    TRY(server_run(&app, &http, (unsigned)lever_int(&a.levers, LEVER_GRACE), stop, on_ready, &ready, &err));
    if (lost.why[0] != '\0') /* the engine's thread has ended: what it wrote can be read */
        TRY(err_set(&err, ST_DEVICE, "the device is lost, and with it the server: %s", lost.why));
    log_info(&l.log, "stopped");
done:
    engine_free(engine);
    chat_template_free(chat);
    free(name);
    loaded_close(&l);
    levers_release(&a.levers);
    stop_signal_free(stop);
    return st == ST_OK ? 0 : cli_fail(&err);
}
