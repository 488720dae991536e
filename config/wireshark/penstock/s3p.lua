-- S3P 0.2.0: commands and replies, and which reply answers which command.

if not ... then return end

local conversations = require("penstock.conversations")
local reading = require("penstock.reading")
local syntax = require("penstock.s3p_syntax")
local tables = require("penstock.s3p_tables")
local tcp = require("penstock.tcp")

local s3p = Proto("s3p", "S3P")
local MOST_ITEMS = 10000 -- records shown one by one

local f = {
    command = ProtoField.string("s3p.command", "Command", base.NONE, "In capitals"),
    reply = ProtoField.string("s3p.reply", "Reply", base.NONE, "ok, id, records or error"),
    elements = ProtoField.uint32("s3p.elements", "Elements", base.DEC),
    name = ProtoField.string("s3p.name", "Stream", base.NONE, "Bytes that are no text are escaped like \\x00"),
    option_key = ProtoField.string("s3p.option.key", "Option"),
    option_value = ProtoField.string("s3p.option.value", "Value"),
    count = ProtoField.int64("s3p.count", "COUNT", base.DEC, nil, nil, "Most records that are wanted"),
    block = ProtoField.int64("s3p.block", "BLOCK", base.DEC, nil, nil, "How long to wait for a record, in ms"),
    ms = ProtoField.uint64("s3p.append.ms", "ID", base.DEC, nil, nil, "Timestamp of all records of an APPEND, in ms"),
    min_id = ProtoField.string("s3p.min_id", "MIN_ID"),
    min_ms = ProtoField.uint64("s3p.min_id.ms", "Timestamp"),
    min_seq = ProtoField.uint64("s3p.min_id.seq", "Sequence"),
    records = ProtoField.uint32("s3p.records", "Records", base.DEC, nil, nil, "How many"),
    bytes = ProtoField.uint32("s3p.records.bytes", "Bytes of records"),
    record = ProtoField.bytes("s3p.record", "Record"),
    length = ProtoField.uint32("s3p.record.length", "Length"),
    record_id = ProtoField.string("s3p.record.id", "Identifier"),
    record_ms = ProtoField.uint64("s3p.record.id.ms", "Timestamp"),
    record_seq = ProtoField.uint64("s3p.record.id.seq", "Sequence"),
    id = ProtoField.string("s3p.id", "Identifier", base.NONE, "Of the last record of an APPEND"),
    id_ms = ProtoField.uint64("s3p.id.ms", "Timestamp"),
    id_seq = ProtoField.uint64("s3p.id.seq", "Sequence"),
    code = ProtoField.string("s3p.error.code", "Error"),
    text = ProtoField.string("s3p.error.message", "Message"),
    fatal = ProtoField.bool("s3p.error.fatal", "Closes the connection"),
    undecoded = ProtoField.bytes("s3p.undecoded", "Undecoded"),
    response_in = ProtoField.framenum("s3p.response_in", "Response in", base.NONE, frametype.RESPONSE),
    request_in = ProtoField.framenum("s3p.request_in", "Request in", base.NONE, frametype.REQUEST),
    request = ProtoField.string("s3p.request", "Answers"),
    time = ProtoField.relative_time("s3p.time", "Time since the command"),
}
local all = {}
for _, field in pairs(f) do
    all[#all + 1] = field
end
s3p.fields = all

local malformed = ProtoExpert.new("s3p.malformed", "Malformed S3P", expert.group.MALFORMED, expert.severity.ERROR)
local refused = ProtoExpert.new("s3p.refused", "Error reply", expert.group.RESPONSE_CODE, expert.severity.NOTE)
local cut_short = ProtoExpert.new("s3p.cut", "Not all of it is in the capture", expert.group.UNDECODED,
    expert.severity.NOTE)
s3p.experts = { malformed, refused, cut_short }

s3p.prefs.ports = Pref.range("TCP ports", "7500", "Ports of S3P servers", 65535)

local is_server_port

local function add_id(tree, fields, range, text)
    local item = tree:add(fields[1], range, text)
    local ms, seq = text:match("^(%d+)%-(%d+)$")
    local first, second = reading.decimal(ms or ""), reading.decimal(seq or "")
    if first == nil or second == nil then return end
    item:add(fields[2], range(0, #ms), first)
    item:add(fields[3], range(#ms + 1), second)
end

local integer_options = { COUNT = f.count, BLOCK = f.block }

local function add_option(tree, range, option)
    local key, value = option.key, option.value
    local whole = range(key.head, value.start + value.length - key.head)
    local name = key.text:upper()
    local where = range(value.start, value.length)
    local branch = tree:add(f.option_key, whole, reading.shown(name))
    branch:append_text(" " .. reading.shown(value.text))
    branch:add(f.option_value, where, reading.shown(value.text))
    if integer_options[name] and value.text:match("^%-?%d+$") and #value.text <= 15 then
        branch:add(integer_options[name], where, Int64.new(tonumber(value.text)))
    elseif name == "ID" and reading.decimal(value.text) then
        branch:add(f.ms, where, reading.decimal(value.text))
    elseif name == "MIN_ID" then
        add_id(branch, { f.min_id, f.min_ms, f.min_seq }, where, reading.shown(value.text))
    end
end

local function add_records(tree, range, records)
    tree:add(f.records, #records):set_generated()
    local size = 0
    for _, record in ipairs(records) do
        size = size + record.length
    end
    tree:add(f.bytes, size):set_generated()
    for number, record in ipairs(records) do
        if number > MOST_ITEMS then
            tree:add(range(record.start), "and " .. #records - MOST_ITEMS .. " records that are not shown")
            return
        end
        local body = range(record.start, record.length)
        local item = tree:add(f.record, body)
        local text = record.length <= 200 and body:raw() or ""
        if reading.printable(text) then item:append_text(" (" .. text .. ")") end
        if record.id ~= nil then
            local id = range(record.id.start, record.id.length)
            add_id(item, { f.record_id, f.record_ms, f.record_seq }, id, record.id.text)
        end
        item:add(f.length, record.length):set_generated()
    end
end

local function plural(count, what)
    return count .. " " .. what .. (count == 1 and "" or "s")
end

local function add_command(tree, range, command)
    if command.elements then tree:add(f.elements, range(0, 2), command.elements) end
    if command.word == nil then return "command" end
    local word = command.command or reading.shown(command.word.text)
    tree:add(f.command, range(command.word.start, command.word.length), word)
    local info = { word }
    if command.name ~= nil then
        local name = reading.shown(command.name.text)
        tree:add(f.name, range(command.name.start, command.name.length), name)
        info[#info + 1] = name
    end
    for _, option in ipairs(command.options) do
        add_option(tree, range, option)
        info[#info + 1] = reading.shown(option.key.text:upper() .. " " .. option.value.text, 100)
    end
    if #command.records > 0 then
        add_records(tree, range, command.records)
        info[#info + 1] = plural(#command.records, "record")
    end
    return table.concat(info, " ")
end

local function add_reply(tree, range, reply)
    if reply.kind == nil then return "reply" end
    tree:add(f.reply, range(0, 1), reply.kind)
    if reply.kind == "id" then
        add_id(tree, { f.id, f.id_ms, f.id_seq }, range(reply.id.start, reply.id.length), reply.id.text)
        return reply.id.text
    elseif reply.kind == "records" then
        add_records(tree, range, reply.records)
        return plural(#reply.records, "record")
    elseif reply.kind == "error" then
        local item = tree:add(f.code, range(1, #reply.code), reply.code)
        if #reply.text > 0 then tree:add(f.text, range(2 + #reply.code, #reply.text), reply.text) end
        tree:add(f.fatal, tables.fatal[reply.code] == true):set_generated()
        item:add_proto_expert_info(refused, reply.code)
        return "-" .. reply.code .. " " .. reply.text
    end
    return "OK"
end

-- Which command a reply answers: both come in order. A reply before the first command of the capture answers none.
local function pair_of(found, pinfo, tvb, offset, from_client, said)
    if pinfo.visited then return found:recall(pinfo, tvb, offset, "s3p") end
    found.commands = found.commands or { first = 1, last = 0 }
    local queue, pair = found.commands, nil
    if from_client then
        pair = { asked = pinfo.number, at = pinfo.rel_ts, command = said }
        queue.last = queue.last + 1
        queue[queue.last] = pair
    elseif queue.first <= queue.last then
        pair = queue[queue.first]
        queue[queue.first] = nil
        queue.first = queue.first + 1
        pair.answered = pinfo.number
    end
    if pair ~= nil then found:mark(pinfo, tvb, offset, "s3p", pair) end
    return pair
end

local function add_pair(tree, pair, pinfo, from_client)
    if pair == nil then return end
    if from_client then
        if pair.answered ~= nil then tree:add(f.response_in, pair.answered):set_generated() end
        return
    end
    tree:add(f.request_in, pair.asked):set_generated()
    tree:add(f.request, pair.command):set_generated()
    tree:add(f.time, reading.time(math.max(0, pinfo.rel_ts - pair.at))):set_generated()
end

local function add_message(tree, range, said, problem, from_client)
    local branch = tree:add(s3p, range)
    local info = (from_client and add_command or add_reply)(branch, range, said)
    branch:append_text(", " .. info)
    if problem ~= nil then
        local text = problem.wrong or "the rest is not in the capture"
        local rest = range(math.min(problem.at or 0, range:len() - 1))
        branch:add(f.undecoded, rest):add_proto_expert_info(problem.wrong and malformed or cut_short, text)
        info = info .. (problem.wrong and " [malformed: " .. text .. "]" or " [cut]")
    end
    return branch, info
end

local KNOWN = 64 -- bytes by which a message that was begun is known again

-- The message at a place: one that an earlier segment began, or a new one.
local function message_at(side, pinfo, data, offset, from_client)
    local begun = side.begun
    side.begun = nil
    local again = begun ~= nil and not pinfo.visited and #data - offset >= begun.held
        and data:sub(offset + 1, offset + #begun.head) == begun.head
    return again and begun.message or syntax.begin(from_client)
end

-- Where the next message may begin, if the capture begins in the middle of one.
local function next_start(data, offset, from_client)
    local start = from_client and "\r\n()%*[34]\r\n%$%d+\r\n%a+\r\n" or "\r\n()[+$*-][%dOE]"
    local at = data:match(start, offset + 1)
    return at and at - 1 or #data
end

local function dissect(tvb, pinfo, tree, found)
    local from_client = found:from_client(pinfo, is_server_port)
    local side = found[from_client and "s3p_client" or "s3p_server"] or {}
    found[from_client and "s3p_client" or "s3p_server"] = side
    local data = tvb:raw()
    local function show(offset, length, said, problem)
        local branch, info = add_message(tree, tvb(offset, length), said, problem, from_client)
        if problem == nil then
            add_pair(branch, pair_of(found, pinfo, tvb, offset, from_client, said.command), pinfo, from_client)
        end
        tcp.info(pinfo, "S3P", info)
        return length
    end
    local function show_middle(offset, length)
        local branch = tree:add(s3p, tvb(offset, length))
        branch:append_text(", the end of a message that began before the capture")
        branch:add(f.undecoded, tvb(offset, length)):add_proto_expert_info(cut_short)
        tcp.info(pinfo, "S3P", "[the end of a message]")
        return length
    end
    local function one(offset)
        local skipped = found:recall(pinfo, tvb, offset, "middle")
        if skipped ~= nil then return show_middle(offset, skipped) end
        local message = message_at(side, pinfo, data, offset, from_client)
        local length, missing, problem = syntax.go_on(message, data, offset)
        if length ~= nil then
            side.known = true
            return show(offset, length, message.said)
        end
        if problem ~= nil and not found.began and not side.known then
            local rest = next_start(data, offset, from_client) - offset
            found:mark(pinfo, tvb, offset, "middle", rest)
            return show_middle(offset, rest)
        end
        if problem ~= nil then return show(offset, #data - offset, message.said, problem) end
        local head = data:sub(offset + 1, offset + KNOWN)
        side.begun = { message = message, head = head, held = #data - offset }
        return nil, missing
    end
    local function cut(offset)
        local message = syntax.begin(from_client)
        local _, _, problem = syntax.go_on(message, data, offset)
        show(offset, #data - offset, message.said, problem or {})
    end
    return tcp.each(tvb, pinfo, one, cut)
end

function s3p.dissector(tvb, pinfo, tree)
    local found = conversations.current(pinfo)
    local other = tcp.chosen(s3p, found)
    if other ~= nil then return other.dissector(tvb, pinfo, tree) end
    return dissect(tvb, pinfo, tree, found)
end

-- On other ports: the beginning of a command.
local function guess(tvb, pinfo, tree)
    local found = conversations.current(pinfo)
    local word = tvb:raw(0, math.min(tvb:len(), 20)):match("^%*[34]\r\n%$%d\r\n(%a+)\r\n")
    if word == nil or tables.commands[word:upper()] == nil then return false end
    pinfo.conversation = s3p
    dissect(tvb, pinfo, tree, found)
    return true
end

is_server_port = tcp.ports(s3p, { ports = "7500" })
s3p:register_heuristic("tcp", guess)

return s3p
