/* Owns: the names of the report's style and script, which the build embeds from report/. NUL-terminated. */
#ifndef FSDPC_PLANNER_VIEW_ASSETS_H
#define FSDPC_PLANNER_VIEW_ASSETS_H

extern const char asset_report_css[], asset_report_js[];

#endif
