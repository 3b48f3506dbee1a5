/* Owns: the architectures of Hugging Face that `fsdpc import` knows, and their keys. Keys are checked against transformers'
 * GPT2Config, LlamaConfig, MistralConfig, MinistralConfig, Qwen2Config, Qwen3Config, Phi3Config, Olmo2Config,
 * GraniteConfig, StableLmConfig and PhiConfig, whose defaults these are. */
#include "cli/import_read.h"

#define OF(field)   offsetof(Imported, field)
#define ALL(absent) {absent, absent, absent, absent, absent, absent, absent, absent, absent}
#define GRANITE_ONE {NOT, NOT, NOT, NOT, NOT, NOT, 1, NOT, NOT} /* a factor that Granite has */
#define NO_DROPOUT  "the family is without dropout: set it to 0"
#define NO_BIAS     "models of this class have no such bias: set it to false"
#define QUANTIZED \
  { "quantization_config", "null", "weights are trained in f32, bf16 or f16: import the model that was quantized" }

/* clang-format off */
/* Llama, OLMo 2, Granite, StableLM and Phi have no windows; one that is stated all the same is taken for one. */
static const Key decoder_keys[] = {
    /*                                                                  Llama Mistral  Qwen2  Qwen3  Phi3 Olmo2 Granite StableLm Phi */
    {"vocab_size",              KEY_SIZE,    OF(vocab),          ALL(MUST)},
    {"hidden_size",             KEY_SIZE,    OF(d),              ALL(MUST)},
    {"intermediate_size",       KEY_SIZE,    OF(inner),          ALL(MUST)},
    {"num_hidden_layers",       KEY_SIZE,    OF(layers),         ALL(MUST)},
    {"num_attention_heads",     KEY_SIZE,    OF(heads),          ALL(MUST)},
    {"num_key_value_heads",     KEY_DERIVED, OF(kv_heads),       {   0,      8,    32,    32,    0,    0,      0,     32,    0}},
    {"head_dim",                KEY_DERIVED, OF(head_dim),       {   0,      0,     0,   128,    0,    0,      0,    NOT,    0}},
    {"max_position_embeddings", KEY_SIZE,    OF(ctx),            {2048, 131072, 32768, 32768, 4096, 2048,   2048,   4096, 2048}},
    {"original_max_position_embeddings",
                                KEY_DERIVED, OF(rope.original),  { NOT,    NOT,   NOT,   NOT,    0,  NOT,    NOT,    NOT,  NOT}},
    {"partial_rotary_factor",   KEY_REAL,    OF(rotary_share),   { NOT,    NOT,   NOT,   NOT,    1,  NOT,    NOT,   0.25,  0.5}},
    {"sliding_window",          KEY_DERIVED, OF(window),         {   0,   4096,  4096,  4096,    0,    0,      0,      0,    0}},
    {"use_sliding_window",      KEY_FLAG,    OF(use_window),     { NOT,    NOT,     0,     0,  NOT,  NOT,    NOT,    NOT,  NOT}},
    {"rms_norm_eps",            KEY_REAL,    OF(eps),            {1e-6,   1e-6,  1e-6,  1e-6, 1e-5, 1e-5,   1e-6,    NOT,  NOT}},
    {"layer_norm_eps",          KEY_REAL,    OF(eps),            { NOT,    NOT,   NOT,   NOT,  NOT,  NOT,    NOT,   1e-5, 1e-5}},
    {"attention_bias",          KEY_FLAG,    OF(attention_bias), {   0,    NOT,   NOT,     0,  NOT,    0,      0,    NOT,  NOT}},
    {"mlp_bias",                KEY_FLAG,    OF(mlp_bias),       {   0,    NOT,   NOT,   NOT,  NOT,  NOT,      0,    NOT,  NOT}},
    {"use_qkv_bias",            KEY_FLAG,    OF(qkv_bias),       { NOT,    NOT,   NOT,   NOT,  NOT,  NOT,    NOT,      0,  NOT}},
    {"tie_word_embeddings",     KEY_FLAG,    OF(tied),           ALL(0)},
    {"embedding_multiplier",    KEY_REAL,    OF(multipliers.embedding), GRANITE_ONE},
    {"attention_multiplier",    KEY_REAL,    OF(multipliers.attention), GRANITE_ONE},
    {"residual_multiplier",     KEY_REAL,    OF(multipliers.residual),  GRANITE_ONE},
    {"logits_scaling",          KEY_REAL,    OF(multipliers.logits),    GRANITE_ONE},
    {0},
};

static const Key gpt2_keys[] = {
    {"vocab_size",          KEY_SIZE,    OF(vocab),  {50257}},
    {"n_positions",         KEY_SIZE,    OF(ctx),    {1024}},
    {"n_embd",              KEY_SIZE,    OF(d),      {768}},
    {"n_layer",             KEY_SIZE,    OF(layers), {12}},
    {"n_head",              KEY_SIZE,    OF(heads),  {12}},
    {"n_inner",             KEY_DERIVED, OF(inner),  {0}},
    {"layer_norm_epsilon",  KEY_REAL,    OF(eps),    {1e-5}},
    {0},
};
/* clang-format on */

static const Only decoder_only[] = {
    {"attention_bias", "false", NO_BIAS},
    {"mlp_bias", "false", NO_BIAS},
    {"attention_dropout", "0", NO_DROPOUT},
    {"resid_pdrop", "0", NO_DROPOUT},
    {"embd_pdrop", "0", NO_DROPOUT},
    {"partial_rotary_factor", "1", "rotary positions turn whole heads: choose another model"},
    QUANTIZED,
    {0},
};

static const Only stablelm_only[] = {
    {"attention_dropout", "0", NO_DROPOUT},
    {"hidden_dropout", "0", NO_DROPOUT},
    {"use_parallel_residual", "false", "in the family attention and the MLP follow each other: " BY_HAND_STABLELM},
    {"qk_layernorm", "false", "heads have norms of their own then, and share them in the language: choose another model"},
    QUANTIZED,
    {0},
};

static const Only phi_only[] = {
    {"qk_layernorm", "false", "the family's queries and keys are not normalised: " BY_HAND_PHI},
    QUANTIZED,
    {0},
};

static const Only gpt2_only[] = {
    {"scale_attn_weights", "true", "attention divides by the root of the head's width: " BY_HAND_GPT2},
    {"scale_attn_by_inverse_layer_idx", "false", "attention is scaled alike in all layers: " BY_HAND_GPT2},
    {"add_cross_attention", "false", "the family is a decoder alone: " BY_HAND_GPT2},
    {"tie_word_embeddings", "true", "the family's head is its embedding: " BY_HAND_GPT2},
    QUANTIZED,
    {0},
};

const char *const import_inert[] = {
    "architectures",   "model_type",        "_name_or_path",      "transformers_version",
    "torch_dtype",     "dtype",             "use_cache",          "bos_token_id",
    "eos_token_id",    "pad_token_id",      "pretraining_tp",     "n_ctx",
    "summary_*",       "task_*",            "initializer_range",  "reorder_and_upcast_attn",
    "rope_theta",      "rope_scaling",      "rope_parameters",    "resid_pdrop",
    "embd_pdrop",      "attn_pdrop",        "return_*",           "output_*",
    "id2label",        "label2id",          "_attn_*",            "auto_map",
    "tokenizer_class", "layer_types",       "max_window_layers",  "use_sliding_window",
    "attention_dropout",
    NULL,
};

/* clang-format off */
#define GPT2            0, gpt2_keys, gpt2_only, "activation_function", import_finish_gpt2
#define DECODER(column) column, decoder_keys, decoder_only, "hidden_act", import_finish_decoder

const Architecture import_architectures[] = {
    {"gpt2", GPT2, {.class = "GPT2LMHeadModel", .write = import_write_gpt2}},
    {"llama", DECODER(LLAMA),
     {.class = "LlamaForCausalLM", .family = "llama", .scalable = true, .write = import_write_decoder}},
    {"mistral", DECODER(MISTRAL),
     {.class = "MistralForCausalLM", .family = "llama", .scalable = true, .write = import_write_decoder}},
    {"ministral", DECODER(MISTRAL),
     {.class = "MinistralForCausalLM", .family = "llama", .scalable = true, .layered_windows = true, .use_window = true,
      .write = import_write_decoder}},
    {"qwen2", DECODER(QWEN2),
     {.class = "Qwen2ForCausalLM", .family = "llama", .scalable = true, .qkv_bias = true, .layered_windows = true,
      .full_layers = 28, .write = import_write_decoder}},
    {"qwen3", DECODER(QWEN3),
     {.class = "Qwen3ForCausalLM", .family = "qwen3", .layered_windows = true, .full_layers = 28,
      .write = import_write_decoder}},
    {"phi3", DECODER(PHI3), {.class = "Phi3ForCausalLM", .family = "phi3", .write = import_write_decoder}},
    {"olmo2", DECODER(OLMO2), {.class = "Olmo2ForCausalLM", .family = "olmo2", .write = import_write_decoder}},
    {"granite", DECODER(GRANITE),
     {.class = "GraniteForCausalLM", .family = "granite", .scalable = true, .multiplied = true, .write = import_write_decoder}},
    {"stablelm", STABLELM, decoder_keys, stablelm_only, "hidden_act", import_finish_decoder,
     {.class = "StableLmForCausalLM", .family = "stablelm", .write = import_write_decoder}},
    {"phi", PHI, decoder_keys, phi_only, "hidden_act", import_finish_phi,
     {.class = "PhiForCausalLM", .family = "phi", .gelu = true, .head_bias = true, .write = import_write_decoder}},
    {0},
};

#define NEIGHBOURS "its rotary positions turn neighbouring dims, and those of the language dims half of what turns apart"

const Impossible import_impossible[] = {
    {"glm", "GlmForCausalLM", NEIGHBOURS},
    {"glm4", "Glm4ForCausalLM", NEIGHBOURS},
    {"gpt_neox", "GPTNeoXForCausalLM",
     "its weights keep the queries, keys and values of a head side by side, and a split here takes all queries first"},
    {0},
};
/* clang-format on */
