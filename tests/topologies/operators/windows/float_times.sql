BEGIN TRANSACTION;
CREATE TABLE "join" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "join" VALUES('["bucket","a",0]',0,'[[[0.1,[0.1],true],[0.3,[0.3],true]],[[0.2,[0.2],false]]]');
INSERT INTO "join" VALUES('["bucket","a",1]',0,'[[[0.9,[0.9],true]],[]]');
INSERT INTO "join" VALUES('["bucket","a",2]',0,'[[],[[1.2,[1.2],false]]]');
INSERT INTO "join" VALUES('{"dict":[["sunshower","about"]]}',0,'{"version":1,"records":{"Row":["k","at"],"Other":["k","on"]}}');
CREATE TABLE "naive" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "naive" VALUES('["__sunshower:time"]',0,'1717243260.0');
INSERT INTO "naive" VALUES('["pane","a",28620721]',0,'[1]');
INSERT INTO "naive" VALUES('{"dict":[["sunshower","about"]]}',0,'{"version":1,"records":{"Row":["k","at"]}}');
CREATE TABLE "naive-sessions" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "naive-sessions" VALUES('["sessions","a"]',0,'[[1717243200.0,1717243260.0,[3]]]');
INSERT INTO "naive-sessions" VALUES('{"dict":[["sunshower","about"]]}',0,'{"version":1,"records":{"Row":["k","at"]}}');
CREATE TABLE "sessions" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "sessions" VALUES('["__sunshower:time"]',0,'0.9');
INSERT INTO "sessions" VALUES('["sessions","a"]',0,'[[0.7,0.9,[[0.7,0.8,0.9]]]]');
INSERT INTO "sessions" VALUES('{"dict":[["sunshower","about"]]}',0,'{"version":1,"records":{"Row":["k","at"]}}');
CREATE TABLE "sliding" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "sliding" VALUES('["__sunshower:time"]',0,'0.9');
INSERT INTO "sliding" VALUES('["pane","a",0]',0,'[[0.1,0.2]]');
INSERT INTO "sliding" VALUES('["pane","a",1]',0,'[[0.7,0.8,0.9]]');
INSERT INTO "sliding" VALUES('{"dict":[["sunshower","about"]]}',0,'{"version":1,"records":{"Row":["k","at"]}}');
CREATE TABLE sunshower_marks (
    state TEXT, task INTEGER, word TEXT NOT NULL, journal TEXT NOT NULL, PRIMARY KEY (state, task)
) WITHOUT ROWID;
INSERT INTO "sunshower_marks" VALUES('join',0,'{"topology": "old", "batches": "", "kind": "non-transactional", "parallelism": 1, "txid": 6, "attempt": 0, "epoch": 6515969803, "version": 2, "spread": "group"}','{"written":[],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('naive',0,'{"topology": "old", "batches": "", "kind": "non-transactional", "parallelism": 1, "txid": 5, "attempt": 0, "epoch": 6515964332, "version": 2, "spread": "group"}','{"written":[],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('naive-sessions',0,'{"topology": "old", "batches": "", "kind": "non-transactional", "parallelism": 1, "txid": 4, "attempt": 0, "epoch": 6515965350, "version": 2, "spread": "group"}','{"written":[],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('sessions',0,'{"topology": "old", "batches": "", "kind": "non-transactional", "parallelism": 1, "txid": 6, "attempt": 0, "epoch": 6515961365, "version": 2, "spread": "group"}','{"written":[],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('sliding',0,'{"topology": "old", "batches": "", "kind": "non-transactional", "parallelism": 1, "txid": 6, "attempt": 0, "epoch": 6515957364, "version": 2, "spread": "group"}','{"written":[],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('timers',0,'{"topology": "old", "batches": "", "kind": "non-transactional", "parallelism": 1, "txid": 4, "attempt": 0, "epoch": 6515970496, "version": 2, "spread": "key"}','{"written":[],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('tumbling',0,'{"topology": "old", "batches": "", "kind": "non-transactional", "parallelism": 1, "txid": 6, "attempt": 0, "epoch": 6515955003, "version": 2, "spread": "group"}','{"written":[],"removed":[]}');
CREATE TABLE "timers" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "timers" VALUES('"a"',0,'5');
INSERT INTO "timers" VALUES('["__sunshower:timer","a"]',0,'1.2');
INSERT INTO "timers" VALUES('{"dict":[["sunshower","about"]]}',0,'{"version":1,"records":{}}');
CREATE TABLE "tumbling" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "tumbling" VALUES('["__sunshower:time"]',0,'0.9');
INSERT INTO "tumbling" VALUES('["pane","a",1]',0,'[[0.7,0.8,0.9]]');
INSERT INTO "tumbling" VALUES('{"dict":[["sunshower","about"]]}',0,'{"version":1,"records":{"Row":["k","at"]}}');
COMMIT;