-- Read what is known about one session, all of it at one moment.

local row, _, log, _, branches, asked, ended, open, untaken, _, _, queue, inputs = unpack(KEYS)
local query = cmsgpack.unpack(ARGV[1])

local function server_time()
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

local values = redis.call('HGETALL', row)
local now = string.format('%.6f', query.now or server_time())
local branch, questions, stretches, records, point, bodies, given = false, {}, false, {}, false, false, {}
local function reply()
  return {now, values, branch, questions, stretches, records, point, bodies, given}
end
if #values == 0 then return reply() end

local head = {}
for position = 1, #values, 2 do
  head[values[position]] = values[position + 1]
end
local last = tonumber(head.pos) or -1

local all = redis.call('LRANGE', branches, 0, -1)
if query.branches then stretches = all end
local decoded = {}
if query.branch or query.fold or #(query.records or {}) > 0 then
  for position, stretch in ipairs(all) do
    local is_read, values = pcall(cmsgpack.unpack, stretch)
    if not (is_read and type(values) == 'table' and tonumber(values[2]) and tonumber(values[3])) then
      return redis.error_reply('DAMAGED ' .. branches)
    end
    decoded[position] = values
  end
end

-- Return the position of a record on the log, by the name of its branch and its number on it.
local function locate(name, number)
  local finish = last
  for position = #decoded, 1, -1 do
    local stretch = decoded[position]
    if stretch[1] == name then
      local pos = stretch[2] + number - stretch[3]
      return pos >= stretch[2] and pos <= finish and pos or nil
    end
    finish = stretch[2] - 1
  end
end

-- Questions: of the head's branch, of another one that is named, or of all

branch = head.branch_no or false
if query.branch then
  branch = false
  for position, stretch in ipairs(decoded) do
    if stretch[1] == query.branch then branch = tostring(position - 1) end
  end
end
local wanted, prefix = {}, branch and branch .. '.'
local function add(fields)
  for _, field in ipairs(fields) do
    if query.all_branches or string.sub(field, 1, #prefix) == prefix then wanted[field] = true end
  end
end
if branch then
  for _, id in ipairs(query.questions or {}) do
    wanted[prefix .. id] = true
  end
  if query.waiting then
    add(redis.call('ZRANGE', open, 0, -1))
    add(redis.call('ZRANGE', untaken, 0, -1))
  end
  if query.every then add(redis.call('HKEYS', asked)) end
end
for field in pairs(wanted) do
  local question = redis.call('HGET', asked, field)
  if question then
    local outcome, waits = redis.call('HGET', ended, field), redis.call('ZSCORE', untaken, field)
    table.insert(questions, {field, question, outcome, waits, redis.call('ZSCORE', open, field)})
  end
end

-- Inputs: some by their ids, and so many of those that wait

local names = {}
for _, id in ipairs(query.inputs or {}) do
  names[id] = true
end
if query.queue then
  for _, id in ipairs(redis.call('ZRANGE', queue, 0, query.queue - 1)) do
    names[id] = true
  end
end
for id in pairs(names) do
  local facts = redis.call('HGET', inputs, 'f' .. id)
  if facts then
    table.insert(given, {id, facts, redis.call('HGET', inputs, 'b' .. id), redis.call('ZSCORE', queue, id)})
  end
end

-- Records, and all that fold to one point

for position, record in ipairs(query.records or {}) do
  local pos = locate(record[1], record[2])
  records[position] = pos and {pos, unpack(redis.call('HMGET', log, pos, pos .. 'b', pos .. 'e'))} or false
end
if query.fold then
  local pos = last
  if query.fold[1] then pos = locate(query.fold[1], query.fold[2]) end
  point = pos and redis.call('HGET', log, pos) or false
  local from, facts = pos, point
  while facts and from > 0 and string.sub(facts, 1, 1) ~= 'F' do
    from = from - 1
    facts = redis.call('HGET', log, from)
  end
  if facts then
    bodies = {}
    for each = from, pos do
      table.insert(bodies, redis.call('HGET', log, each .. 'b'))
    end
  end
end

return reply()
