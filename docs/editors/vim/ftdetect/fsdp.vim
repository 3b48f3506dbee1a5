autocmd BufRead,BufNewFile *.fsdp setfiletype fsdp
