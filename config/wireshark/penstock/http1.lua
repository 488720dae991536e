-- HTTP/1.1 with sessions: bodies of S2S and server-sent events are shown chunk by chunk, as they come. Everything else
-- is handed to Wireshark's dissector, one whole message at a time.

if not ... then return end

local flows = require("penstock.flows")
local s2s = require("penstock.s2s")
local sse = require("penstock.sse")
local tcp = require("penstock.tcp")

local http1 = {}

local LONGEST_HEAD = 65536
local LONGEST_CHUNK_LINE = 4096

local http = Dissector.get("http")

local session = Proto("http1_session", "HTTP/1.1 session")
local f = {
    size = ProtoField.uint32("http1_session.chunk.size", "Chunk size", base.DEC),
    last = ProtoField.bool("http1_session.chunk.last", "Last chunk"),
}
session.fields = { f.size, f.last }
local malformed = ProtoExpert.new("http1_session.malformed", "Malformed HTTP/1.1", expert.group.MALFORMED,
    expert.severity.ERROR)
session.experts = { malformed }

local SESSIONS = { ["s2s/proto"] = s2s.add, ["text/event-stream"] = sse.add }

local MESSAGE = { at = "message" }
local OPAQUE = { at = "opaque" } -- all that follows is Wireshark's

-- The head of a message at a place of `data`: its length, and what of it matters here. nil: not all there.
local function head_of(data, at)
    local _, stop = data:find("\r\n\r\n", at, true)
    if stop == nil then return nil end
    local head = { length = stop - at + 1 }
    local first, rest = data:sub(at, stop - 2):match("^([^\r\n]*)\r?\n?(.*)$")
    head.method = first:match("^(%u+) [^ ]+ HTTP/1%.%d$")
    head.status = tonumber(first:match("^HTTP/1%.%d (%d%d%d)"))
    for name, value in rest:gmatch("([^:\r\n]+):[ \t]*([^\r\n]*)") do
        head[name:lower()] = value:lower()
    end
    return head
end

-- Where a chunked body ends; nil: not all there.
local function end_of_chunks(data, at)
    while true do
        local _, stop, size = data:find("^(%x+)[^\r\n]*\r\n", at)
        if stop == nil or #size > 8 then return nil end
        local length = tonumber(size, 16)
        if length == 0 then
            if data:sub(stop + 1, stop + 2) == "\r\n" then return stop + 2 end
            local _, last = data:find("\r\n\r\n", stop - 1, true)
            return last
        end
        at = stop + 1 + length + 2
        if at > #data + 1 then return nil end
    end
end

local function has_no_body(head, asked)
    return head.status ~= nil and (head.status < 200 or head.status == 204 or head.status == 304 or asked == "HEAD")
end

-- What stands behind a head: a state, or the length of the whole message, or nil and the missing bytes.
local function body_of(head, asked, data, at)
    local chunked = (head["transfer-encoding"] or ""):find("chunked", 1, true) ~= nil
    local kind = (head["content-type"] or ""):match("^[^; ]*")
    if has_no_body(head, asked) then return nil, head.length end
    if chunked and SESSIONS[kind] then return { at = "size", kind = kind } end
    if chunked then
        local stop = end_of_chunks(data, at + head.length)
        return nil, stop and stop - at + 1
    end
    local length = tonumber((head["content-length"] or ""):match("^%d+$"))
    if length ~= nil then
        local missing = at + head.length + length - 1 - #data
        if missing > 0 then return nil, nil, missing end
        return nil, head.length + length
    end
    if head.status == nil then return nil, head.length end
    if SESSIONS[kind] then return { at = "close", kind = kind } end
    return OPAQUE
end

local function call_http(place, tvb, offset, length, whole)
    local part = tvb(offset, length):tvb()
    return tcp.hand_over(http, part, place.pinfo, place.tree, whole, session, malformed)
end

local steps = {}

-- A message from its head on.
function steps.message(place, tvb, offset)
    local data, side, other = place.data, place.side, place.other
    local head = head_of(data, offset + 1)
    if head == nil and #data - offset < LONGEST_HEAD then return nil end
    if head == nil or (head.method == nil and head.status == nil) then
        return call_http(place, tvb, offset, tvb:len() - offset, false), OPAQUE
    end
    local asked
    if head.status ~= nil then asked = place.visited and place.asked or other.methods[other.first] end
    local state, length, missing = body_of(head, asked, data, offset + 1)
    if state == nil and length == nil then return nil, missing end
    if not place.visited then
        if head.method ~= nil then
            side.last = side.last + 1
            side.methods[side.last] = head.method
        elseif head.status >= 200 and other.first <= other.last then
            other.methods[other.first] = nil
            other.first = other.first + 1
        end
        place.asked = asked
    end
    if state == OPAQUE then length = tvb:len() - offset end
    call_http(place, tvb, offset, length or head.length, state ~= OPAQUE)
    if head.status == 101 then state = OPAQUE end
    return length or head.length, state or MESSAGE
end

function steps.opaque(place, tvb, offset)
    return call_http(place, tvb, offset, tvb:len() - offset, false), OPAQUE
end

-- The line before a chunk, or the last chunk with its trailers.
function steps.size(place, tvb, offset, state)
    local data = place.data
    local _, stop, size = data:find("^(%x+)[^\r\n]*\r\n", offset + 1)
    local short = #data - offset < LONGEST_CHUNK_LINE
    if stop == nil and short and data:find("^%x*[^\r\n]*\r?$", offset + 1) then return nil end
    if stop == nil or #size > 8 then
        local branch = place.tree:add(session, tvb(offset))
        branch:add_proto_expert_info(malformed, "no chunk begins here")
        tcp.info(place.pinfo, "HTTP", "[malformed chunk]")
        return tvb:len() - offset, OPAQUE
    end
    local length = tonumber(size, 16)
    if length > 0 then
        local branch = place.tree:add(session, tvb(offset, stop - offset))
        branch:append_text(", chunk of " .. length .. " bytes")
        branch:add(f.size, tvb(offset, #size), length)
        return stop - offset, { at = "data", kind = state.kind, left = length }
    end
    local _, last = data:find("\r\n\r\n", stop - 1, true)
    if last == nil then return nil end
    local branch = place.tree:add(session, tvb(offset, last - offset))
    branch:append_text(", last chunk")
    branch:add(f.last, true):set_generated()
    tcp.info(place.pinfo, "HTTP", "end of the body")
    return last - offset, MESSAGE
end

local function add_piece(place, tvb, offset, length, kind)
    local flow = flows.of(place.found, place.direction .. " " .. kind)
    local client = place.direction == "client"
    local info = SESSIONS[kind](place.found, flow, place.pinfo, place.tree, tvb, offset, length, client)
    tcp.info(place.pinfo, kind == "s2s/proto" and "S2S" or "SSE", info ~= "" and info or "part of a chunk")
end

function steps.data(place, tvb, offset, state)
    local length = math.min(state.left, tvb:len() - offset)
    add_piece(place, tvb, offset, length, state.kind)
    if length < state.left then return length, { at = "data", kind = state.kind, left = state.left - length } end
    return length, { at = "line", kind = state.kind }
end

-- The line end behind a chunk.
function steps.line(_, tvb, offset, state)
    if tvb:len() - offset < 2 then return nil, 1 end
    return 2, { at = "size", kind = state.kind }
end

function steps.close(place, tvb, offset, state)
    add_piece(place, tvb, offset, tvb:len() - offset, state.kind)
    return tvb:len() - offset, state
end

local function side_of(found, name)
    found.http1 = found.http1 or {}
    found.http1[name] = found.http1[name] or { state = MESSAGE, methods = {}, first = 1, last = 0 }
    return found.http1[name]
end

-- Dissects what a segment holds; `direction` is client or server.
function http1.dissect(found, tvb, pinfo, tree, direction)
    local side = side_of(found, direction)
    local other = side_of(found, direction == "client" and "server" or "client")
    local place = {
        found = found, pinfo = pinfo, tree = tree, direction = direction, side = side, other = other,
        data = tvb:raw(), visited = pinfo.visited,
    }
    local function one(offset)
        local state = side.state
        if place.visited then
            local before = found:recall(pinfo, tvb, offset, "http1")
            if before == nil then return tvb:len() - offset end
            state, place.asked = before.state, before.asked
        end
        local taken, following = steps[state.at](place, tvb, offset, state)
        if taken == nil then return nil, following end
        if not place.visited then
            found:mark(pinfo, tvb, offset, "http1", { state = state, asked = place.asked })
            side.state = following
        end
        return taken
    end
    local function cut(offset)
        call_http(place, tvb, offset, tvb:len() - offset, true)
    end
    return tcp.each(tvb, pinfo, one, cut)
end

return http1
