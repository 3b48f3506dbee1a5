/* Owns: see terminal.h. */
#include "base/terminal.h"

#include <sys/ioctl.h>

void terminal_cut(char *line) {
  struct winsize size;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || strlen(line) < size.ws_col) return;
  line[size.ws_col - 1] = '\0';
  for (char *end = line + strlen(line); end > line; end--)
    if (end[-1] == ' ' && end[0] == ' ') {
      end[-1] = '\0';
      return;
    }
}
