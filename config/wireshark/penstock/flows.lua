-- One direction of a session whose messages lie in pieces of HTTP: chunks, or DATA frames. A message may take several
-- pieces, and a piece may hold several messages. What was begun is kept here, since Wireshark 4.0 cannot do it for
-- HTTP/1.1, and does it for HTTP/2 in the first pass only where two pieces stand in one TCP segment.

if not ... then return end

local reading = require("penstock.reading")

local flows = {}

local LONGEST = 16 * 1024 * 1024

-- The flow of a conversation by a name: a direction and a stream.
function flows.of(found, name)
    found.flows = found.flows or {}
    local flow = found.flows[name]
    if flow == nil then
        flow = { parts = {}, held = 0, needed = 1 }
        found.flows[name] = flow
    end
    return flow
end

local function keep(flow, data)
    if #data > 0 then flow.parts[#flow.parts + 1] = data end
    flow.held = flow.held + #data
end

-- Hands out the messages that a piece completes: `add(tvb, start, length)` for each, where the message's bytes stand.
-- `measure(data, at)` gives the length of the message at a place of a binary string, or nil and how many bytes from
-- there on it takes to know more, or raises {wrong}. Gives what is left over: how many bytes, where, and what is wrong
-- there.
function flows.feed(found, flow, pinfo, tvb, start, length, measure, add)
    local prefix = found:recall(pinfo, tvb, start, "flow")
    if prefix == false then return length, start end
    local first = prefix == nil
    local piece = length > 0 and tvb(start, length):raw() or ""
    if first then
        keep(flow, piece)
        if flow.held < flow.needed and flow.held <= LONGEST then
            found:mark(pinfo, tvb, start, "flow", false)
            return length, start
        end
        prefix = table.concat(flow.parts):sub(1, flow.held - #piece)
    end
    local data = prefix .. piece
    local at, needed = 1, nil
    local fine, problem = pcall(function()
        while at <= #data do
            local size
            size, needed = measure(data, at)
            if size == nil then return end
            if at > #prefix then
                add(tvb, start + at - 1 - #prefix, size)
            else
                add(reading.tvb(data:sub(at, at + size - 1), "Reassembled over pieces of HTTP"), 0, size)
            end
            at = at + size
        end
    end)
    if not fine and (type(problem) ~= "table" or problem.wrong == nil) then error(problem, 0) end
    local rest = #data - at + 1
    if first then
        local some = at > 1 or not fine
        found:mark(pinfo, tvb, start, "flow", some and prefix)
        if some then
            flow.parts, flow.held = {}, 0
            if fine then keep(flow, data:sub(at)) end
        end
        flow.needed = fine and needed or 1
    end
    local here = math.min(rest, length)
    return here, start + length - here, not fine and problem.wrong or nil
end

return flows
