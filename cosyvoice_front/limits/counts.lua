-- Counts of one key for all fronts, as one step that nothing interrupts, by Redis's own clock.
--
-- KEYS: the streams in progress by the time at which their lease ends; the requests of the last minute by their
-- time; the characters of the day (UTC). ARGV: what to do, and what that needs. The answer is empty, or the limit
-- that refuses, and numbers for its message.

local MINUTE, DAY = 60, 86400
local STREAMS, REQUESTS, CHARACTERS = KEYS[1], KEYS[2], KEYS[3]

local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
local today = math.floor(now / DAY)

local function spend(characters, limit)
  local left = tonumber(limit) - tonumber(redis.call('GET', CHARACTERS) or 0)
  if tonumber(limit) > 0 and tonumber(characters) > left then
    return {'characters', tostring(left), tostring((today + 1) * DAY - now)}
  end
  redis.call('INCRBY', CHARACTERS, characters)
  redis.call('EXPIREAT', CHARACTERS, (today + 1) * DAY)
  return {}
end

local function lease(id, seconds)
  redis.call('ZADD', STREAMS, now + seconds, id)
  redis.call('EXPIRE', STREAMS, math.ceil(seconds))
end

local actions = {}

function actions.take(id, seconds, characters, most_streams, most_requests, most_characters)
  most_streams, most_requests = tonumber(most_streams), tonumber(most_requests)
  redis.call('ZREMRANGEBYSCORE', STREAMS, '-inf', now)
  redis.call('ZREMRANGEBYSCORE', REQUESTS, '-inf', now - MINUTE)
  if most_streams > 0 and redis.call('ZCARD', STREAMS) >= most_streams then
    return {'streams'}
  end
  if most_requests > 0 and redis.call('ZCARD', REQUESTS) >= most_requests then
    local leaving = redis.call('ZRANGE', REQUESTS, -most_requests, -most_requests, 'WITHSCORES')
    return {'requests', tostring(leaving[2] + MINUTE - now)}
  end
  local refusal = spend(characters, most_characters)
  if #refusal == 0 then
    lease(id, seconds)
    redis.call('ZADD', REQUESTS, now, id)
    redis.call('EXPIRE', REQUESTS, MINUTE)
  end
  return refusal
end

function actions.spend(characters, most_characters)
  return spend(characters, most_characters)
end

function actions.renew(seconds, ...)
  for _, id in ipairs({...}) do
    lease(id, seconds)
  end
  return {}
end

function actions.leave(id)
  redis.call('ZREM', STREAMS, id)
  return {}
end

function actions.give_back(id, characters)
  redis.call('ZREM', STREAMS, id)
  local asked = tonumber(redis.call('ZSCORE', REQUESTS, id) or 0)
  if asked > now - MINUTE and math.floor(asked / DAY) == today then
    redis.call('DECRBY', CHARACTERS, characters)
  end
  redis.call('ZREM', REQUESTS, id)
  return {}
end

return actions[ARGV[1]](unpack(ARGV, 2))
