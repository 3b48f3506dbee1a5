-- Owns: what a person does in Neovim with a .fsdp file, without the person: opens it, hovers, goes to definitions, completes,
-- breaks the file and mends it. Prints what the server said.
local fsdpc, file = vim.env.FSDPC, vim.env.FSDPC_DOCUMENT
local function wait(what, done)
  if not vim.wait(20000, done, 20) then
    print('FAILED: no ' .. what)
    vim.cmd('cquit 1')
  end
end

vim.cmd('edit ' .. file)
local client = vim.lsp.start_client({ name = 'fsdpc', cmd = { fsdpc, 'lsp' }, root_dir = vim.fn.getcwd() })
vim.lsp.buf_attach_client(0, client)
wait('client', function() return #vim.lsp.buf_get_clients(0) == 1 and vim.lsp.buf_get_clients(0)[client].initialized end)

-- The position of the n-th `word` in the document.
local function at(word, n)
  local seen = 0
  for line, text in ipairs(vim.api.nvim_buf_get_lines(0, 0, -1, true)) do
    local from = 1
    while true do
      local column = text:find(word, from, true)
      if not column then break end
      seen = seen + 1
      if seen == (n or 1) then
        return { textDocument = vim.lsp.util.make_text_document_params(), position = { line = line - 1, character = column - 1 } }
      end
      from = column + 1
    end
  end
  error('no ' .. word)
end

local function ask(method, params)
  local answers, why = vim.lsp.buf_request_sync(0, 'textDocument/' .. method, params, 20000)
  for _, answer in pairs(answers or {}) do return answer.result or answer.error end
  print('FAILED: ' .. method .. ': ' .. tostring(why))
  vim.cmd('cquit 1')
end

local function hover(word, n)
  local result = ask('hover', at(word, n))
  print('--- hover ' .. word .. '\n' .. (type(result) == 'table' and result.contents and result.contents.value or 'nothing'))
end
local function definition(word, n)
  local result = ask('definition', at(word, n))
  if type(result) ~= 'table' or not result.uri then return print('--- definition ' .. word .. ': nothing') end
  local start = result.range.start
  print(('--- definition %s: %s:%d:%d'):format(word, result.uri:match('[^/]*$'), start.line + 1, start.character + 1))
end
local function completion(word, n, prefix)
  local labels = {}
  for _, item in ipairs(ask('completion', at(word, n))) do
    if item.label:sub(1, #prefix) == prefix then labels[#labels + 1] = item.label end
  end
  table.sort(labels)
  print('--- completion at ' .. word .. ' of "' .. prefix .. '": ' .. table.concat(labels, ' '))
end
local function diagnostics(some)
  wait('diagnostics', function() return (#vim.diagnostic.get(0) > 0) == some end)
  print('--- diagnostics: ' .. #vim.diagnostic.get(0))
  for _, d in ipairs(vim.diagnostic.get(0)) do print(('%d:%d-%d: %s'):format(d.lnum + 1, d.col + 1, d.end_col + 1, d.message)) end
end

hover('linear(x, widening')
hover('mlp(x) as')
hover('vocab', 2)
hover('embedding')
definition('mlp(x) as')
definition('vocab', 3)
definition('wte)')
definition('families')
definition('d)', 3)
completion('memory', 1, 'm')
completion('embedding', 1, 'em')
completion('loss', 1, 'v')
local line = vim.fn.search('embedding(tokens') - 1
local text = vim.api.nvim_buf_get_lines(0, line, line + 1, true)[1]
vim.api.nvim_buf_set_lines(0, line, line + 1, true, { (text:gsub('tokens', 'tokenz')) })
diagnostics(true)
vim.api.nvim_buf_set_lines(0, line, line + 1, true, { text })
diagnostics(false)
vim.lsp.stop_client(client)
wait('end', function() return vim.lsp.client_is_stopped(client) end)
vim.cmd('qall!')
