/* openai.h - the routes of the OpenAI API, each a function of (request, App, Channel) that writes one answer.
 *
 *   POST /v1/chat/completions   POST /v1/completions   GET /v1/models   GET /v1/models/ID   GET /health
 *
 * README.md lists the fields and the rules.   Thread: any. */
#ifndef METRALE_SERVER_OPENAI_H
#define METRALE_SERVER_OPENAI_H
#include "server/app.h"
#include "server/channel.h"
#include "server/http.h"

/* Finds the route and answers; 404 and 405 where there is none. */
void openai_handle(App *app, const HttpRequest *req, Channel *ch);
/* The same as slots for http_start. */
HttpHandler openai_handler(App *app);

void openai_chat(App *app, const HttpRequest *req, Channel *ch);
void openai_completions(App *app, const HttpRequest *req, Channel *ch);
#endif
