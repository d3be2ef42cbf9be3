/* A rank in C: prints its place, or why it has none. It may be given a command: "while COMMAND" is run by rank 0, which
 * is in the world meanwhile; "after COMMAND" by all, once they have left. */
#include <ciranda/ciranda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  const char* const command = argc == 3 ? argv[2] : NULL;
  const int is_after = command != NULL && strcmp(argv[1], "after") == 0;
  ciranda_context* world = NULL;
  char why[1024];
  int ended = 0;
  if (ciranda_init(NULL, &world, why, sizeof(why)) != CIRANDA_OK) return puts(why) < 0;
  printf("is rank %d of %d\n", ciranda_rank(world), ciranda_size(world));
  fflush(stdout);
  if (command != NULL && !is_after && ciranda_rank(world) == 0) ended = system(command);
  ciranda_shutdown(world);
  if (is_after) ended = system(command);
  return ended;
}
