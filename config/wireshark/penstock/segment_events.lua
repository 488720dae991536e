-- Events: what stands in blocks, in appends and in the bytes of segments, each behind a header of its own.

if not ... then return end

local fields = require("penstock.segment_fields")
local reading = require("penstock.reading")

local events = {}

local HEADER = 8
local LONGEST = 8 * 1024 * 1024 + HEADER
local MOST_SHOWN = 10000
local PADDING, PARTIAL_EVENT, EVENT = -1, -2, 0

-- Adds one event, of which the header stands at `at`.
function events.add(tree, tvb, at, length)
    local whole = tvb(at, HEADER + length)
    if length == 0 then
        tree:add(fields.event_length, tvb(at + 4, 4))
        return
    end
    local item = tree:add(fields.event_data, tvb(at + HEADER, length))
    if length <= 200 then
        local data = whole(HEADER, length):raw()
        if reading.printable(data) then item:append_text(" (" .. data .. ")") end
    end
    item:add(fields.event_length, tvb(at + 4, 4))
end

-- The type and the length of what stands at `at`; nil where no header can be there.
local function header(tvb, at, stop)
    if stop - at < HEADER then return nil end
    return tvb(at, 4):int(), tvb(at + 4, 4):int()
end

local function begins_with_event(tvb, at, stop)
    local kind, length = header(tvb, at, stop)
    return kind == EVENT and length >= 0 and length <= LONGEST and at + HEADER + length <= stop
end

-- The wrapper at the end of an AppendBlock: Padding, or the beginning of an event. Gives the bytes of the latter.
local function add_wrapper(tree, tvb, at, stop)
    local kind, length = header(tvb, at, stop)
    if (kind ~= PADDING and kind ~= PARTIAL_EVENT) or length ~= stop - at - HEADER then return nil end
    if kind == PADDING then
        tree:add(fields.padding, tvb(at, stop - at), stop - at)
        return nil
    end
    if length == 0 then return "" end
    tree:add(fields.event_part, tvb(at + HEADER, length)):append_text(" (PartialEvent)")
    return tvb(at + HEADER, length):raw()
end

-- Adds the events between two places, and the wrapper behind them; nothing where no event stands first, as in byte
-- streams. Gives the bytes of a PartialEvent.
function events.add_all(tree, tvb, start, stop, wrapped)
    local kind = header(tvb, start, stop)
    if not begins_with_event(tvb, start, stop) then
        return wrapped and (kind == PADDING or kind == PARTIAL_EVENT) and add_wrapper(tree, tvb, start, stop) or nil
    end
    local branch = tree:add(tvb(start, stop - start), "Events")
    local at, count = start, 0
    while begins_with_event(tvb, at, stop) do
        local length = tvb(at + 4, 4):int()
        count = count + 1
        if count <= MOST_SHOWN then events.add(branch, tvb, at, length) end
        at = at + HEADER + length
    end
    branch:append_text(": " .. count .. (count > MOST_SHOWN and ", not all of them shown" or ""))
    if at == stop then return nil end
    local partial = wrapped and add_wrapper(branch, tvb, at, stop) or nil
    local last = header(tvb, at, stop)
    if not wrapped and (last == nil or last == EVENT) then branch:add(fields.event_part, tvb(at, stop - at)) end
    return partial
end

return events
