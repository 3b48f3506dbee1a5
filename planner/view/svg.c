/* Owns: pieces of SVG. */
#include "planner/view/svg.h"

#include <math.h>

void svg_rect(Text *out, double x, double y, double width, double height, const char *fill,
              const char *more) {
  text_printf(out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\"%s", x, y, width,
              height, fill, more);
  text_printf(out, "/>\n");
}

void svg_line(Text *out, double x1, double y1, double x2, double y2, const char *stroke, const char *more) {
  text_printf(out, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" stroke=\"%s\"%s/>\n", x1, y1, x2,
              y2, stroke, more);
}

void svg_escaped(Text *out, const char *text) {
  for (uint32_t length; *text; text += length ? length : 1) {
    length = text_utf8_length(text);
    if (*text == '<')
      text_add(out, "&lt;", 4);
    else if (*text == '>')
      text_add(out, "&gt;", 4);
    else if (*text == '&')
      text_add(out, "&amp;", 5);
    else if (*text == '"')
      text_add(out, "&quot;", 6);
    else if ((unsigned char)*text < 0x20)
      text_add(out, " ", 1); /* XML 1.0 has no control characters */
    else
      text_add(out, length ? text : "\uFFFD", length ? length : 3); /* as names of files may hold */
  }
}

void svg_text(Text *out, double x, double y, double size, const char *anchor, const char *fill,
              const char *more, const char *text) {
  text_printf(out, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%g\" text-anchor=\"%s\" fill=\"%s\"%s>", x, y,
              size, anchor, fill, more);
  svg_escaped(out, text);
  text_printf(out, "</text>\n");
}

double svg_text_width(const char *text, double size) {
  size_t count = 0;
  for (; *text; text++) count += ((unsigned char)*text & 0xc0) != 0x80; /* not inside a UTF-8 sequence */
  return 0.58 * size * (double)count;
}

static bool fits(const char *name, double width) {
  return *name && svg_text_width(name, 11) + 6 <= width;
}

/* Length of the part that is a number at the start of `name`, or 0. */
static size_t number_length(const char *name) {
  size_t digits = strspn(name, "0123456789");
  return name[digits] == '.' || !name[digits] ? digits : 0;
}

const char *svg_fit(Arena *arena, const char *name, double width) {
  const char *dot;
  for (const char *tail = name; tail; tail = (dot = strchr(tail, '.')) ? dot + 1 : NULL) {
    if (fits(tail, width)) return tail;
    size_t length = number_length(tail);
    if (!length || !strchr(name, '+')) continue;
    const char *head = arena_printf(arena, "%.*s..", (int)(tail + length - name), name), *block = head + (tail - name);
    return fits(head, width) ? head : fits(block, width) ? block : NULL;
  }
  return NULL;
}

void svg_legend(Text *out, double *x, double *y, const char *fill, const char *text) {
  double width = 18 + svg_text_width(text, 12) + 22;
  if (*x + width > PLOT_RIGHT + 22) {
    *x = PLOT_LEFT;
    *y += 20;
  }
  svg_rect(out, *x, *y - 9, 11, 11, fill, " rx=\"2\"");
  svg_text(out, *x + 18, *y + 0.5, 12, "start", INK_SOFT, "", text);
  *x += width;
}

void timeline_joins(Timeline *t, double top, double bottom) {
  for (uint32_t s = 1; s < t->plan->segments.count; s++) {
    double x = timeline_x(t, t->begin_ns[s]);
    svg_line(t->out, x, top, x, bottom, "#8a97a8", " stroke-dasharray=\"2 3\"");
  }
}

double svg_step(double range, int most, bool binary) {
  if (!(range > 0)) return 1;
  double step = binary ? 1 : pow(10, floor(log10(range)) - 2);
  static const double factors[] = {2, 2.5, 2};
  for (int i = 0; range / step > most; i++) step *= binary ? 2 : factors[i % 3];
  return step;
}
