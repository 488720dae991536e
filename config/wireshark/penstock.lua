-- Shows the messages that Penstock decoded, in Wireshark 4.0 and later. `penstock export --to pcapng`, `penstock tail
-- --pcapng` and `penstock extcap` write them into comments of packets, as penstock/capture/wireshark/comments.py
-- describes; nothing is decoded here. docs/wireshark.md says how to use it.

set_plugin_info({ version = "2.0.0", description = "Messages that Penstock decoded" })

-- Names of fields by their kinds, which `python -m penstock.tools.wireshark` generates from the codecs.
local PROTOCOLS = {
    s2s = { title = "S2S", column = "S2S",
        bool = [[flags.reconnect_advised flags.terminal heartbeat]],
        bytes = [[append_input.records.body append_input.records.headers.name append_input.records.headers.value
            read_batch.records.body read_batch.records.headers.name read_batch.records.headers.value]],
        uint = [[append_ack.end.seq_num append_ack.end.timestamp append_ack.start.seq_num append_ack.start.timestamp
            append_ack.tail.seq_num append_ack.tail.timestamp append_input.match_seq_num append_input.records.timestamp
            read_batch.records.seq_num read_batch.records.timestamp read_batch.tail.seq_num read_batch.tail.timestamp
            records status]],
        string = [[append_input.fencing_token error flags.compression message]],
        none = [[append_ack append_ack.end append_ack.start append_ack.tail append_input append_input.records
            append_input.records.headers flags read_batch read_batch.records read_batch.records.headers
            read_batch.tail]],
    },
    sse = { title = "Server-Sent Events", column = "SSE",
        bytes = [[records.body records.headers.name records.headers.value]],
        uint = [[records.seq_num records.timestamp tail.seq_num tail.timestamp]],
        string = [[event id]],
        none = [[records records.headers tail]],
    },
    s3p = { title = "S3P", column = "S3P",
        bool = [[error.fatal]],
        bytes = [[record]],
        uint = [[append.ms block count id.ms id.seq min_id.ms min_id.seq record.id.ms record.id.seq record.length
            records records.bytes]],
        string = [[command error.code error.message id min_id name record.id reply]],
        none = [[append error]],
    },
    pravega = { title = "Pravega segment protocol", column = "Pravega",
        bool = [[at_tail chunks.exists_in_storage end_of_segment exists flags.at_end flags.at_tail is_deleted is_sealed
            must_be_empty reached_end should_clear sorted success]],
        bytes = [[continuation_token data entries.key.key entries.value event event.data from_key keys.key reserved
            to_key]],
        guid = [[attribute_id attribute_updates.attribute connection_id writer_id]],
        int = [[attribute_updates.new_value attribute_updates.old_value attribute_updates.update_type block_length
            chunks.length_in_metadata chunks.length_in_storage chunks.start_offset connection_offset
            connection_offset_ack_level container_id current_segment_write_offset entries.key.version entry_count
            error_code event_number expected_offset expected_value from_position high_version key_length keys.version
            last_event_number last_modified last_position length low_version new_target_write_offset new_value
            number_of_events offset part previous_event_number request_id rollover_size_bytes scale_type
            size_of_whole_events sources.new_target_write_offset start_offset suggested_entry_count suggested_key_count
            suggested_length table_segment_offset target_offset target_rate truncation_offset value versions
            write_offset]],
        string = [[chunks.chunk_name command correct_host delegation_token message operation parent_segment segment
            server_stack_trace source sources sources.source target]],
        none = [[attribute_updates chunks entries entries.key flags keys]],
    },
    penstock = { title = "Penstock", column = "Penstock",
        bytes = [[record]],
        string = [[failure kind layer malformed problem stream]],
    },
}

local MARK = "penstock decoded\n"
local NOTE_MARK = "penstock connection="
local NOTES = { "side", "name", "protocol", "tls", "route", "stream", "identity", "back" }
local MOST_NOTES = 20 -- of one key, shown with each frame of a conversation
local MAKERS = {
    bool = ProtoField.bool, bytes = ProtoField.bytes, guid = ProtoField.guid, int = ProtoField.int64,
    none = ProtoField.none, string = ProtoField.string, uint = ProtoField.uint64, time = ProtoField.relative_time,
}

local stream_of, comments_of = Field.new("tcp.stream"), Field.new("frame.comment")
local http_of, http2_of = Field.new("http"), Field.new("http2")

-- ---- fields ---------------------------------------------------------------------------------------------------------

local function declare(name, protocol)
    protocol.proto = Proto(name, protocol.title)
    protocol.fields, protocol.kinds = {}, {}
    local all = {}
    local function add(kind, path, maker, ...)
        protocol.kinds[path] = kind
        protocol.fields[path] = maker(name .. "." .. path, path:match("[^.]+$"), ...)
        all[#all + 1] = protocol.fields[path]
    end
    for kind, maker in pairs(MAKERS) do
        for path in (protocol[kind] or ""):gmatch("%S+") do add(kind, path, maker) end
    end
    if name == "penstock" then
        add("uint", "connection", ProtoField.uint64)
        for _, key in ipairs(NOTES) do
            if protocol.fields[key] == nil then add("string", key, ProtoField.string) end
        end
    end
    add("time", "time", ProtoField.relative_time)
    add("string", "request", ProtoField.string)
    add("frame", "request_in", ProtoField.framenum, base.NONE, frametype.REQUEST)
    add("frame", "response_in", ProtoField.framenum, base.NONE, frametype.RESPONSE)
    protocol.proto.fields = all
end

for name, protocol in pairs(PROTOCOLS) do declare(name, protocol) end
local penstock = PROTOCOLS.penstock

local EXPERTS = {
    malformed = ProtoExpert.new("penstock.malformed.expert", "Bytes that break the protocol",
        expert.group.MALFORMED, expert.severity.ERROR),
    problem = ProtoExpert.new("penstock.problem.expert", "Bytes that were not decoded",
        expert.group.UNDECODED, expert.severity.NOTE),
    failure = ProtoExpert.new("penstock.failure.expert", "Error response",
        expert.group.RESPONSE_CODE, expert.severity.NOTE),
}
penstock.proto.experts = { EXPERTS.malformed, EXPERTS.problem, EXPERTS.failure }

-- ---- conversations --------------------------------------------------------------------------------------------------

local conversations = {} -- by number of the TCP stream

function penstock.proto.init() conversations = {} end

-- The pairs of `penstock connection=12 name=listeners.s3p stream="a b"`.
local function note_pairs(comment)
    local text = comment:gsub("\\(.)", { ['"'] = "\1", ["\\"] = "\2" })
    local notes, at = {}, #"penstock" + 1
    while true do
        local _, stop, key, value = text:find('^ ([a-z_]+)="([^"]*)"', at)
        if stop == nil then _, stop, key, value = text:find('^ ([a-z_]+)=([^ "]+)', at) end
        if stop == nil then return notes end
        notes[key] = value:gsub("\1", '"'):gsub("\2", "\\")
        at = stop + 1
    end
end

local function conversation_of(stream, comments)
    local conversation = conversations[stream] or { notes = {}, requests = {}, responses = {} }
    conversations[stream] = conversation
    for _, comment in ipairs(comments) do
        for key, value in pairs(comment:sub(1, #NOTE_MARK) == NOTE_MARK and note_pairs(comment) or {}) do
            local values = conversation.notes[key] or {}
            conversation.notes[key] = values
            if not values[value] and #values < MOST_NOTES then
                values[value] = true
                values[#values + 1] = value
            end
        end
    end
    return conversation
end

local function add_notes(tree, notes)
    if notes.connection == nil then return end
    local item = tree:add(penstock.proto):set_text("Penstock, connection " .. notes.connection[1])
    item:add(penstock.fields.connection, UInt64.new(notes.connection[1])):set_generated()
    for _, key in ipairs(NOTES) do
        for _, value in ipairs(notes[key] or {}) do
            item:add(penstock.fields[key], value):set_generated()
        end
    end
end

-- ---- messages -------------------------------------------------------------------------------------------------------

-- The lines of all messages. What hex digits stand for is put into one buffer, of which fields are ranges.
local function read_lines(comments)
    local lines, digits, size = {}, {}, 0
    local protocol, path = penstock, {}
    for _, comment in ipairs(comments) do
        for text in (comment:sub(1, #MARK) == MARK and comment:sub(#MARK + 1) or ""):gmatch("[^\n]+") do
            local indent, name, equals, rest = text:match("^( *)([^ =]+)(=?)(.*)$")
            if indent == "" then protocol = PROTOCOLS[name] or penstock end
            path[#indent] = name
            local at = table.concat(path, ".", 1, #indent)
            local owner = EXPERTS[at] ~= nil and penstock or protocol
            local line = { protocol = protocol, depth = #indent, name = name, kind = owner.kinds[at],
                field = owner.fields[at], value = equals == "=" and rest or nil, summary = rest:sub(2) }
            lines[#lines + 1] = line
            if line.value ~= nil and (line.kind == "bytes" or line.kind == "guid") then
                line.start, line.length = size, #line.value / 2
                digits[#digits + 1] = line.value
                size = size + line.length
            end
        end
    end
    return lines, size > 0 and ByteArray.new(table.concat(digits)):tvb("Decoded by Penstock") or nil
end

local VALUES = {
    bool = function(text) return text == "1" end,
    int = function(text) return Int64.new(text) end,
    uint = function(text) return UInt64.new(text) end,
    string = function(text) return text end,
    time = function(text) return NSTime.new(math.floor(text / 1e9), text % 1e9) end,
}

local function add_bytes(tree, line, data)
    local range = data(line.start, line.length)
    local item = tree:add(line.field, range)
    local text = line.kind == "bytes" and range:raw() or ""
    if #text <= 200 and text:match("^[\32-\126]+$") then item:append_text(" (" .. text .. ")") end
    return item
end

local function add_line(tree, line, data)
    if line.start ~= nil then return add_bytes(tree, line, data) end
    if line.value == nil then return line.kind == "none" and tree:add(line.field) or tree:add(line.name) end
    local value = VALUES[line.kind]
    if value == nil then return tree:add(line.name .. ": " .. line.value) end
    local item = tree:add(line.field, value(line.value))
    if EXPERTS[line.name] ~= nil then item:add_proto_expert_info(EXPERTS[line.name], line.value) end
    return item
end

-- Links a request and its response, which have the same key. `kind`: of this message.
local function link(tree, line, pinfo, conversation, kind)
    local fields, requests, responses = line.protocol.fields, conversation.requests, conversation.responses
    if line.name == "@sent" then
        requests[line.value] = { frame = pinfo.number, kind = kind }
        local frame = responses[line.value]
        if frame ~= nil then tree:add(fields.response_in, frame):set_generated() end
    elseif line.name == "@asked" then
        responses[line.value] = pinfo.number
        local request = requests[line.value]
        if request == nil then return end
        tree:add(fields.request_in, request.frame):set_generated()
        tree:add(fields.request, request.kind):set_generated()
    end
end

local function add_messages(tree, pinfo, conversation, lines, data)
    local items, summaries, column, kind = { [-1] = tree }, {}, nil, nil
    for _, line in ipairs(lines) do
        if line.depth == 0 then
            items[0] = tree:add(line.protocol.proto)
            items[0]:append_text(", " .. line.summary)
            summaries[#summaries + 1] = line.summary
            column, kind = line.protocol.column, line.summary:match("^%S+")
        elseif line.name:sub(1, 1) == "@" then
            link(items[0], line, pinfo, conversation, kind)
        else
            items[line.depth] = add_line(items[line.depth - 1], line, data)
        end
    end
    if column == nil then return end
    local info = table.concat(summaries, "; ")
    if http_of() ~= nil or http2_of() ~= nil then
        pinfo.cols.info:append(", " .. info)
    else
        pinfo.cols.protocol, pinfo.cols.info = column, info
    end
end

-- Runs after all other dissectors, for every frame.
function penstock.proto.dissector(_, pinfo, tree)
    local stream = stream_of()
    if stream == nil then return end
    local comments = {}
    for _, comment in ipairs({ comments_of() }) do comments[#comments + 1] = tostring(comment.value) end
    local conversation = conversation_of(stream.value, comments)
    add_notes(tree, conversation.notes)
    local fine, problem = pcall(function() add_messages(tree, pinfo, conversation, read_lines(comments)) end)
    if not fine then tree:add(penstock.proto):append_text(", a comment that cannot be read: " .. tostring(problem)) end
end

register_postdissector(penstock.proto)

-- ---- HTTP/2 on any port, which Wireshark knows by some ports only ---------------------------------------------------

local PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
local http2, carrier = Dissector.get("http2"), Proto("penstock_http2", "HTTP/2 on any port")

local function dissect_http2(tvb, pinfo, tree)
    local can = pinfo.can_desegment
    pinfo.can_desegment = can + 1 -- one is taken away for each dissector on the way
    local fine = pcall(http2.call, http2, tvb, pinfo, tree)
    pinfo.can_desegment = can
    if not fine then tree:add(carrier, tvb()):append_text(", frames that Wireshark cannot read") end
    return tvb:len()
end

carrier.dissector = dissect_http2

carrier:register_heuristic("tcp", function(tvb, pinfo, tree)
    if tvb:len() < #PREFACE or tvb:raw(0, #PREFACE) ~= PREFACE then return false end
    pinfo.conversation = carrier
    dissect_http2(tvb, pinfo, tree)
    return true
end)
