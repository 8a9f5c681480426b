-- Write the effects of one decision to one session: all of them or, if a guard does not hold, nothing.
--
-- Everything is checked before the first write of these, because Redis does not roll a script back. Indexes are not keys
-- of the session; a plain server lets a script write them, too.

local row, document, log, numbers, branches, asked, ended, open, untaken, expiring, listed, queue, inputs =
  unpack(KEYS)
local effects = cmsgpack.unpack(ARGV[1])
local guard, move, lease = effects.guard, effects.move, effects.lease

local function server_time()
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

-- The time as people write it, in UTC: Redis has no function for that. Years are counted from March, in eras of 400.
local function readable(time)
  local days, seconds = math.floor(time / 86400) + 719468, math.floor(time % 86400)
  local era, day = math.floor(days / 146097), days % 146097
  local year = math.floor((day - math.floor(day / 1460) + math.floor(day / 36524) - math.floor(day / 146096)) / 365)
  day = day - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  local month = math.floor((5 * day + 2) / 153)
  day = day - math.floor((153 * month + 2) / 5) + 1
  month = month < 10 and month + 3 or month - 9
  year = year + era * 400 + (month <= 2 and 1 or 0)
  local hours, minutes = math.floor(seconds / 3600), math.floor(seconds % 3600 / 60)
  return string.format('%04d-%02d-%02dT%02d:%02d:%02dZ', year, month, day, hours, minutes, seconds % 60)
end

local now = effects.now or server_time()
local stamp = string.format('%.6f', now)

local texts = {'user', 'branch', 'number', 'owner', 'cancel', 'status', 'program', 'ttl', 'user_term'}
local numbers_of = {'fence', 'waiting', 'inputs', 'expires', 'touched', 'branch_no', 'pos'}
local head = {}
for position, value in ipairs(redis.call('HMGET', row, unpack(texts))) do
  head[texts[position]] = value or nil
end
local exists = redis.call('EXISTS', row) == 1
for position, value in ipairs(redis.call('HMGET', row, unpack(numbers_of))) do
  head[numbers_of[position]] = tonumber(value or nil)
  if exists and not head[numbers_of[position]] then
    return redis.error_reply('DAMAGED ' .. row .. ' ' .. numbers_of[position])
  end
end

-- Guards

if exists ~= guard.exists then return false end
if exists then
  local checkpoint = head.pos < 0 and '' or head.branch .. '.' .. head.number
  local live = head.owner ~= nil and head.expires > now and head.owner ~= guard.replaces
  if (effects.user and head.user ~= effects.user)
    or (guard.checkpoint and guard.checkpoint ~= checkpoint)
    or (guard.branch and guard.branch ~= head.branch)
    or (guard.fence and guard.fence ~= head.fence)
    or (guard.owner and guard.owner ~= head.owner)
    or (guard.live ~= nil and guard.live ~= live)
    or (guard.waiting and guard.waiting ~= head.waiting)
    or (guard.inputs and guard.inputs ~= head.inputs)
    or (guard.idle and not (head.touched < now - guard.idle))
  then
    return false
  end
else
  head = {
    user = effects.user, user_term = effects.user_term, status = 'queued', fence = 0, waiting = 0, inputs = 0, expires = 0, branch_no = -1, pos = -1,
  }
end

local function place(branch, id)
  local number = move and branch == move.branch and move.branch_no or head.branch_no
  return number .. '.' .. id
end

local is_open = {}
for _, question in ipairs(effects.asks) do
  local field = place(move.branch, question.id)
  local is_there = redis.call('ZSCORE', open, field) or redis.call('HEXISTS', ended, field) == 1
  if is_there or is_open[field] ~= nil then return false end
  is_open[field] = question.ended == nil
end
for _, answer in ipairs(effects.ends) do
  local field = place(answer.branch, answer.id)
  if is_open[field] == nil then is_open[field] = redis.call('ZSCORE', open, field) ~= false end
  if not is_open[field] then return false end
  if answer.is_given and (tonumber(redis.call('ZSCORE', expiring, field) or nil) or math.huge) <= now then
    return false
  end
  is_open[field] = false
end

local submits, begins_input, withdraws = effects.submits, effects.begins_input, effects.withdraws
if submits and redis.call('HEXISTS', inputs, 'f' .. submits.id) == 1 then return false end
if begins_input and redis.call('ZRANGE', queue, 0, 0)[1] ~= begins_input then return false end
if withdraws and not redis.call('ZSCORE', queue, withdraws) then return false end

-- The inbox: every open question of a head's branch, in one sorted set for each term that it can be selected by. What
-- is there of a session is also in `listed`, so that it can be taken out again, even by others (see now.lua).

local entries = {}

-- Return a question's place in the inbox, and the terms it stands under; nothing if that cannot be read.
local function entry_of(field)
  if entries[field] then return entries[field] end
  local stored, entry = redis.call('HGET', listed, field), {}
  local is_read, found = pcall(cmsgpack.unpack, stored or '')
  if is_read and type(found) == 'table' then
    for position, value in ipairs(found) do
      entry[position] = tostring(value)
    end
  end
  entries[field] = entry
  return entry
end

local function new_entry(field, number, question)
  local place = string.format('%016d:%d:%d:', number, #effects.app, #effects.session)
  local entry = {place .. effects.app .. effects.session .. field}
  for _, term in ipairs(question.terms) do
    table.insert(entry, term)
  end
  if head.user_term then table.insert(entry, head.user_term) end
  return entry
end

local function list(field, number, question)
  local entry = new_entry(field, number, question)
  for position = 2, #entry do
    redis.call('ZADD', 'adj:inbox:' .. entry[position], question.asked, entry[1])
  end
  if question.expires then
    redis.call('ZADD', expiring, question.expires, field)
    table.insert(entry, question.terms[1] .. 'expiring')
    redis.call('ZADD', 'adj:inbox:' .. entry[#entry], question.expires, entry[1])
  end
  redis.call('HSET', listed, field, cmsgpack.pack(entry))
  entries[field] = entry
end

local function unlist(field)
  local entry = entry_of(field)
  for position = 2, #entry do
    redis.call('ZREM', 'adj:inbox:' .. entry[position], entry[1])
  end
  redis.call('HDEL', listed, field)
end

local function unlist_all()
  for _, field in ipairs(redis.call('HKEYS', listed)) do
    if field ~= '' then unlist(field) end
  end
end

-- Whoever listens hears of it as soon as it is written. Without the right to publish, they look now and then.
local function hint()
  if effects.channel then redis.pcall('PUBLISH', effects.channel, cmsgpack.pack({effects.app, effects.session})) end
end

local sessions, due = effects.index .. 'sessions', effects.index .. 'due'

-- The index of sessions with a status, as they are listed: what is done and has inputs in its queue is queued.
local function index_of(status, inputs)
  return sessions .. '=' .. (status == 'done' and inputs > 0 and 'queued' or status or '')
end

local with_status = index_of(move and move.status or head.status, head.inputs + effects.inputs)
local had_status = exists and index_of(head.status, head.inputs) or with_status

-- A session begins with nothing, also where one of the same id has lost its row, but not all of the rest.

if not exists then
  leave_indexes(listed)
  redis.call('UNLINK', unpack(KEYS))
end

-- What this call will touch must be what it was made as. A key that is not there yet is fine.

local damaged
local function check(command, key) -- a command that only what is meant to be there can answer
  if type(redis.pcall(command, key)) == 'table' then damaged = damaged or key end
end
local function check_entry(entry)
  for position = 2, #entry do
    check('ZCARD', 'adj:inbox:' .. entry[position])
  end
end
local function check_number(key, value)
  if value and not (string.match(value, '^%d+$') and #value < 16) then damaged = damaged or key end
end

-- The indexes
check('ZCARD', due)
if move or head.pos < 0 or effects.removes then
  check('ZCARD', sessions)
  if head.user then check('ZCARD', sessions .. '/' .. head.user) end
end
if move or head.pos < 0 or effects.removes or had_status ~= with_status then
  check('ZCARD', had_status)
  check('ZCARD', with_status)
end
if effects.ttl or head.ttl or effects.removes then check('ZCARD', 'adj:ends') end
if not exists then check('SCARD', 'adj:apps') end
for _, begun in ipairs(effects.begins) do
  check('SCARD', 'adj:begun:' .. begun.digest)
end
if #effects.notices > 0 then
  check('HLEN', effects.index .. 'notices')
  check('SCARD', effects.index .. 'outbox')
end
for _, notice in ipairs(effects.notices) do
  check('ZCARD', effects.index .. 'outbox/' .. notice.to)
end
if #effects.asks > 0 then
  check('STRLEN', 'adj:asked')
  if not damaged then check_number('adj:asked', redis.call('GET', 'adj:asked')) end
end
for _, question in ipairs(effects.asks) do
  check_entry(new_entry('', 0, question))
  if question.expires then check('ZCARD', 'adj:inbox:' .. question.terms[1] .. 'expiring') end
end

-- The session
for _, record in ipairs(effects.records) do -- the log itself is the first that is written to
  if record.count > 0 then check('ZCARD', numbers) end
end
if #effects.drops > 0 then check('ZCARD', numbers) end
local leaves = #effects.branches > 0 or effects.removes
local asks_or_ends = #effects.asks + #effects.ends > 0
if leaves then check('LLEN', branches) end
if leaves or asks_or_ends or effects.ttl or head.ttl then check('HLEN', listed) end
if asks_or_ends then
  check('HLEN', asked)
  check('HLEN', ended)
  check('ZCARD', open)
end
if asks_or_ends or #effects.takes > 0 then check('ZCARD', untaken) end
local is_owned = lease and lease.owner or (not lease and head.owner)
if asks_or_ends or not is_owned then check('ZCARD', expiring) end
if submits or begins_input or withdraws or not is_owned then
  check('ZCARD', queue)
  check('HLEN', inputs)
end
if submits then check_number(row, redis.call('HGET', row, 'submitted')) end
if not damaged then
  for _, field in ipairs(leaves and redis.call('HKEYS', listed) or {}) do
    if field ~= '' then check_entry(entry_of(field)) end
  end
  for _, answer in ipairs(effects.ends) do
    local field = place(answer.branch, answer.id)
    check_entry(entry_of(field))
    entries[field] = nil -- this call may ask it first
  end
end
if damaged then return redis.error_reply('DAMAGED ' .. damaged) end

if effects.removes then
  unlist_all()
  leave_sessions(effects.index, effects.session, head.user)
  redis.call('ZREM', 'adj:ends', row)
  redis.call('UNLINK', unpack(KEYS))
  hint()
  return {stamp, head.cancel or false, 0}
end

-- The log

for _, record in ipairs(effects.records) do
  local at = record.full and 'F' .. stamp or 'P' .. stamp
  redis.call('HSET', log, record.pos, at .. ' ' .. record.facts, record.pos .. 'b', record.body)
  if record.count > 0 then
    redis.call('HSET', log, record.pos .. 'e', record.events)
    redis.call('ZADD', numbers, record.seq, record.pos)
  end
end
for _, pos in ipairs(effects.drops) do
  redis.call('HDEL', log, pos, pos .. 'b', pos .. 'e')
  redis.call('ZREM', numbers, pos)
end
for _, branch in ipairs(effects.branches) do
  redis.call('RPUSH', branches, branch)
  unlist_all()
  redis.call('UNLINK', untaken, expiring)
  head.waiting = 0
end

-- Questions

for _, question in ipairs(effects.asks) do
  local field, number = place(move.branch, question.id), redis.call('INCR', 'adj:asked')
  redis.call('HSET', asked, field, number .. ' ' .. question.facts)
  if question.ended then
    redis.call('HSET', ended, field, question.ended)
  else
    redis.call('ZADD', open, number, field)
    list(field, number, question)
  end
end
for _, answer in ipairs(effects.ends) do
  local field = place(answer.branch, answer.id)
  redis.call('HSET', ended, field, stamp .. ' ' .. answer.facts)
  unlist(field)
  if not answer.taken then redis.call('ZADD', untaken, redis.call('ZSCORE', open, field), field) end
  redis.call('ZREM', open, field)
  redis.call('ZREM', expiring, field)
end
for _, id in ipairs(effects.takes) do
  redis.call('ZREM', untaken, head.branch_no .. '.' .. id)
end
for _, begun in ipairs(effects.begins) do
  redis.call('SADD', 'adj:begun:' .. begun.digest, begun.facts)
end

-- The outbox: see outbox.lua

for _, notice in ipairs(effects.notices) do
  redis.call('HSET', effects.index .. 'notices', notice.id, '0 ' .. stamp .. ' ' .. notice.facts)
  redis.call('SADD', effects.index .. 'outbox', notice.to)
  redis.call('ZADD', effects.index .. 'outbox/' .. notice.to, notice.due or stamp, notice.id)
end

-- The queue: facts begin with whether the input abandons, its number, and when it came in

if submits then
  local facts = (submits.abandons and 'A' or 'K') .. redis.call('HINCRBY', row, 'submitted', 1)
  redis.call('HSET', inputs, 'f' .. submits.id, facts .. ' ' .. stamp .. ' ' .. submits.facts)
  redis.call('HSET', inputs, 'b' .. submits.id, submits.body)
  redis.call('ZADD', queue, redis.call('HGET', row, 'submitted'), submits.id)
end
if begins_input then
  redis.call('ZREM', queue, begins_input)
  redis.call('HDEL', inputs, 'b' .. begins_input)
end
if withdraws then
  redis.call('ZREM', queue, withdraws)
  redis.call('HDEL', inputs, 'f' .. withdraws, 'b' .. withdraws)
end

-- The session's row

local changes = {}
local function set(name, value)
  changes[#changes + 1] = name
  changes[#changes + 1] = value
  head[name] = value
end

if not exists then
  local first = {
    session = effects.session, app = effects.app, user = effects.user, user_term = effects.user_term,
    created = stamp, branch = '', branch_no = -1,
    number = -1, pos = -1, full_pos = -1, size = 0, status = 'queued', fence = 0, claims = 0, seq = 0,
    updated = stamp, touched = stamp, program = '',
  }
  for name, value in pairs(first) do
    set(name, value)
  end
  redis.call('SADD', 'adj:apps', effects.app)
end
set('waiting', head.waiting + effects.waiting)
set('inputs', head.inputs + effects.inputs)
if head.program == '' and effects.program ~= '' then set('program', effects.program) end
if move or head.pos < 0 then
  for name, value in pairs(move or {}) do
    set(name, value)
  end
  set('updated', stamp)
  redis.call('ZADD', sessions, stamp, effects.session)
  if head.user then redis.call('ZADD', sessions .. '/' .. head.user, stamp, effects.session) end
end
if had_status ~= with_status then redis.call('ZREM', had_status, effects.session) end
if head.updated or had_status ~= with_status then
  local updated = head.updated or tonumber(redis.call('HGET', row, 'updated') or nil) or stamp
  redis.call('ZADD', with_status, updated, effects.session)
end
if lease then
  head.owner = lease.owner
  if lease.owner then set('owner', lease.owner) else redis.call('HDEL', row, 'owner') end
  head.expires = lease.owner and now + lease.ttl or 0
  set('fence', lease.fence)
  if lease.claims then set('claims', lease.claims) end
end
local cancel = head.cancel
if effects.cancel then
  set('cancel', effects.cancel)
elseif effects.uncancels then
  redis.call('HDEL', row, 'cancel')
end
local touches = move or lease or #effects.ends > 0 or submits
if touches then set('touched', stamp) end
local ttl = effects.ttl or tonumber(head.ttl)
if ttl then set('ttl', ttl) end
redis.call('HSET', row, 'expires', string.format('%.6f', head.expires), unpack(changes))
if effects.document then
  redis.call('SET', document, effects.document[1] .. readable(now) .. effects.document[2])
end

-- Since when somebody should take it up, or from when on

local function due_at()
  if head.owner then return head.expires end
  if head.waiting > 0 then return now end
  local at = tonumber(redis.call('ZRANGE', expiring, 0, 0, 'WITHSCORES')[2])
  local first = head.inputs > 0 and redis.call('ZRANGE', queue, 0, 0)[1]
  if first then
    local facts = redis.call('HGET', inputs, 'f' .. first) or ''
    local begins = head.status == 'queued' or head.status == 'done'
    local holds = head.status == 'failed' or head.status == 'cancelled'
    if begins or (holds and string.sub(facts, 1, 1) == 'A') then
      at = math.min(at or now, tonumber(string.match(facts, ' ([%d.]+) ')) or now)
    end
  end
  return at
end

local at = due_at()
if at then redis.call('ZADD', due, at, effects.session) else redis.call('ZREM', due, effects.session) end

-- Until when it is kept. What others need to take it out of the indexes stays a while longer.

if ttl and touches then
  local kept = math.max(ttl, head.owner and head.expires - now or 0)
  for _, key in ipairs(KEYS) do
    redis.call('PEXPIRE', key, math.ceil(kept * 1000))
  end
  redis.call('HSET', listed, '', cmsgpack.pack({effects.index, effects.session, head.user}))
  redis.call('PEXPIRE', listed, math.ceil((kept + 2592000) * 1000))
  redis.call('ZADD', 'adj:ends', server_time() + kept, row)
end
hint()
return {stamp, cancel or false, head.inputs}
