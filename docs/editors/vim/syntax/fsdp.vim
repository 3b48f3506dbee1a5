" Syntax of .fsdp files. Copy docs/editors/vim into ~/.vim (or ~/.config/nvim).
if exists('b:current_syntax') | finish | endif

syntax keyword fsdpStatement use model module let input repeat return as in init freeze
syntax keyword fsdpBlock train cluster plan device node network optimizer unit
syntax keyword fsdpKey lr min_lr warmup cooldown no_decay betas eps decay momentum tokens_per_step batch steps precision reduce master rounding loss_scale growth backoff interval clip seed order
syntax keyword fsdpKey name memory bandwidth bandwidth_share peak gemm_share gemm_prologue attention_share attention_backward tile_units launch
syntax keyword fsdpKey product moves host_link host_contention host_memory shared_queue devices latency efficiency nodes contention price
syntax keyword fsdpKey generation allocator clock attention_tokens reduce_bandwidth gather all_reduce network_contention comm_slowdown compute_spread comm_spread executor
syntax keyword fsdpKey strategy wrap reshard checkpoint offload save recompute host prefetch micro_batch
syntax keyword fsdpKey states loss loss_chunks selective update packed reentrant fused_norms fused_layers fused_sums expandable_segments owners update_in_backward beta2_decay eps2 threshold
syntax keyword fsdpConstant auto none full block whole size yes no causal true false adamw sgd lion adafactor constant linear cosine wsd
syntax keyword fsdpConstant sequential shuffled full_shard shard_grad_op shard_optim hybrid_shard no_shard zeros ones normal uniform
syntax keyword fsdpType int float f32 bf16 f16 cpu gpu
" Layers, where they are called: `linear` is also a schedule.
syntax match fsdpLayer /\<\(embedding\|positions\|linear\|layernorm\|rmsnorm\|rope\|split\|attention\|gelu\|relu\|silu\|mul\|scale\|add\|dropout\|cross_entropy\|mse\)\ze\s*(/
syntax match fsdpNumber /\<[0-9][0-9_]*\(\.[0-9]\+\)\?\([eE][-+]\?[0-9]\+\)\?\([A-Za-z]\+\(\/[a-z]\+\)\?\)\?\>/
syntax region fsdpString start=/"/ end=/"/ oneline
syntax match fsdpComment /#.*$/ contains=@Spell

highlight default link fsdpStatement Statement
highlight default link fsdpBlock Structure
highlight default link fsdpKey Identifier
highlight default link fsdpConstant Constant
highlight default link fsdpType Type
highlight default link fsdpLayer Function
highlight default link fsdpNumber Number
highlight default link fsdpString String
highlight default link fsdpComment Comment

let b:current_syntax = 'fsdp'
setlocal commentstring=#\ %s
