/* A tool for NVTX, as Nsight Systems is one: the library loads it by NVTX_INJECTION64_PATH, and it writes the ranges
   that a program makes to the file of NVTX_TOOL_OUTPUT. The numbers are those of nvToolsExt's callbacks. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kCallbacks = 1, kModuleCore2 = 5 };
enum { kRangeStart = 2, kRangeEnd = 3, kRangePush = 4, kRangePop = 5, kRegisterString = 10, kDomainCreate = 12 };
enum { kRegistered = 3, kMost = 64 };

typedef void (*Function)(void);

typedef struct {
  size_t size;
  int (*table_of)(int module, Function*** table, unsigned* size);
} Callbacks;

typedef struct {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  union {
    const char* text;
    void* registered;
  } message;
} Attributes;

static FILE* output;
static char texts[kMost][kMost]; /* of domains and registered strings, whose handle is the number */
static intptr_t n_texts;

static void* keep(const char* text) {
  strncpy(texts[++n_texts], text, kMost - 1);
  return (void*)n_texts;
}

static void* create_domain(const char* name) { return keep(name); }

static void* register_string(void* domain, const char* text) {
  (void)domain;
  return keep(text);
}

static const char* text_of(const Attributes* of) {
  return of->message_type == kRegistered ? texts[(intptr_t)of->message.registered] : of->message.text;
}

static void tell(const char* what, void* domain, const char* text) {
  fprintf(output, "%s %s: %s\n", what, texts[(intptr_t)domain], text);
  fflush(output);
}

static int push(void* domain, const Attributes* of) { return tell("push", domain, text_of(of)), 0; }

static int pop(void* domain) { return tell("pop", domain, ""), 0; }

static uint64_t start(void* domain, const Attributes* of) { return tell("start", domain, text_of(of)), 1; }

static void end(void* domain, uint64_t range) { tell("end", domain, range == 1 ? "" : "another"); }

int InitializeInjectionNvtx2(const void* (*export_table)(uint32_t)) {
  const Callbacks* callbacks = export_table(kCallbacks);
  Function** table = NULL;
  unsigned size = 0;
  output = fopen(getenv("NVTX_TOOL_OUTPUT"), "w");
  if (!output || !callbacks || !callbacks->table_of(kModuleCore2, &table, &size) || size <= kDomainCreate) return 0;
  *table[kRangeStart] = (Function)start;
  *table[kRangeEnd] = (Function)end;
  *table[kRangePush] = (Function)push;
  *table[kRangePop] = (Function)pop;
  *table[kRegisterString] = (Function)register_string;
  *table[kDomainCreate] = (Function)create_domain;
  return 1;
}
