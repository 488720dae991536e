-- Penstock's dissectors for Wireshark 4.0 and later: S3P, Pravega's segment protocol (both dialects), S2's sessions.
-- docs/wireshark.md says how to install them and what can be filtered.
--
-- Wireshark runs this file, and then each file of the folder `penstock` too; those return at once unless they were
-- required from here.

set_plugin_info({
    version = "1.0.0",
    description = "S3P, Pravega's segment protocol and S2 sessions, as Penstock records them",
})

local here = __DIR__ or debug.getinfo(1, "S").source:match("^@(.*)[/\\]")
package.path = here .. "/?.lua;" .. package.path

local conversations = require("penstock.conversations")

local s3p = require("penstock.s3p")
local segment = require("penstock.segment")
local s2 = require("penstock.s2")

conversations.route("s3p", s3p)
conversations.route("segment", segment)
conversations.route("s2", s2)
conversations.route("controller", s2)
conversations.route("management", s2)
