BEGIN TRANSACTION;
CREATE TABLE "collected" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "collected" VALUES('"$windows"',0,'[11,{"time":32.5,"late":0,"groups":[["a",0,[[0,[[0,5,10,15,20,25,30,35,40,45,50,55,60,65]]]]],["b",0,[[0,[[1,4,6,9,11,14,16,19,21,24,26,29,31,34,36,39,41,44,46,49,51,54,56,59,61,64]]]]],["e",0,[[0,[[2,3,7,8,12,13,17,18,22,23,27,28,32,33,37,38,42,43,47,48,52,53,57,58,62,63]]]]]],"fired":[]}]');
CREATE TABLE "collected-rows" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
CREATE TABLE "counted" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "counted" VALUES('["$windows","a"]',0,'[11,{"time":null,"late":0,"groups":[["a",14,[]]],"fired":[["a",1,350]]}]');
INSERT INTO "counted" VALUES('["$windows","b"]',0,'[11,{"time":null,"late":0,"groups":[["b",26,[[3,[294]]]]],"fired":[]}]');
INSERT INTO "counted" VALUES('["$windows","e"]',0,'[11,{"time":null,"late":0,"groups":[["e",26,[[3,[293]]]]],"fired":[]}]');
CREATE TABLE "counted-rows" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "counted-rows" VALUES('"a"',0,'[11,2]');
INSERT INTO "counted-rows" VALUES('"b"',0,'[9,3]');
INSERT INTO "counted-rows" VALUES('"e"',0,'[9,3]');
CREATE TABLE "panes" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "panes" VALUES('"$windows"',0,'[11,{"time":32.5,"late":0,"groups":[["a",0,[[9,[1]],[10,[2]]]],["b",0,[[9,[3]],[10,[2]]]],["e",0,[[9,[2]],[10,[2]]]]],"fired":[["a",30,2],["b",30,5],["e",30,5]]}]');
CREATE TABLE "panes-rows" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "panes-rows" VALUES('"a"',0,'[11,10]');
INSERT INTO "panes-rows" VALUES('"b"',0,'[11,10]');
INSERT INTO "panes-rows" VALUES('"e"',0,'[11,10]');
CREATE TABLE "sums" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "sums" VALUES('11',0,'[10,null]');
INSERT INTO "sums" VALUES('12',0,'[10,330]');
INSERT INTO "sums" VALUES('21',0,'[10,null]');
INSERT INTO "sums" VALUES('22',0,'[10,null]');
INSERT INTO "sums" VALUES('24',0,'[10,1440]');
INSERT INTO "sums" VALUES('["__sunshower:node",11,0,0]',0,'[10,null]');
INSERT INTO "sums" VALUES('["__sunshower:node",12,0,0]',0,'[10,[[330],null,null,null,null,null,null,null,null,null,null,null,null,null,null,null]]');
INSERT INTO "sums" VALUES('["__sunshower:node",21,0,0]',0,'[10,null]');
INSERT INTO "sums" VALUES('["__sunshower:node",22,0,0]',0,'[10,null]');
INSERT INTO "sums" VALUES('["__sunshower:node",24,0,0]',0,'[10,[[720],[720],null,null,null,null,null,null,null,null,null,null,null,null,null,null]]');
INSERT INTO "sums" VALUES('["__sunshower:origin",["totals","a"]]',0,'[10,[10,[[12,0]],[11]]]');
INSERT INTO "sums" VALUES('["__sunshower:origin",["totals","b"]]',0,'[10,[10,[[24,1]],[21]]]');
INSERT INTO "sums" VALUES('["__sunshower:origin",["totals","e"]]',0,'[10,[10,[[24,0]],[22]]]');
INSERT INTO "sums" VALUES('["__sunshower:slots",11]',0,'[10,null]');
INSERT INTO "sums" VALUES('["__sunshower:slots",12]',0,'[10,[1,-1,1]]');
INSERT INTO "sums" VALUES('["__sunshower:slots",21]',0,'[10,null]');
INSERT INTO "sums" VALUES('["__sunshower:slots",22]',0,'[10,null]');
INSERT INTO "sums" VALUES('["__sunshower:slots",24]',0,'[10,[2,-1,2]]');
CREATE TABLE sunshower_marks (
    state TEXT, task INTEGER, word TEXT NOT NULL, journal TEXT NOT NULL, PRIMARY KEY (state, task)
) WITHOUT ROWID;
INSERT INTO "sunshower_marks" VALUES('collected',0,'{"topology": "facts", "batches": "2898b2feda0f4368aa45cfd319deaa65", "kind": "transactional", "parallelism": 1, "txid": 11, "attempt": 0, "epoch": 1, "version": 2}','{"written":[],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('counted',0,'{"topology": "facts", "batches": "2898b2feda0f4368aa45cfd319deaa65", "kind": "transactional", "parallelism": 1, "txid": 11, "attempt": 0, "epoch": 1, "version": 2}','{"written":[],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('counted-rows',0,'{"topology": "facts", "batches": "2898b2feda0f4368aa45cfd319deaa65", "kind": "transactional", "parallelism": 1, "txid": 11, "attempt": 0, "epoch": 1, "version": 2}','{"written":[],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('panes',0,'{"topology": "facts", "batches": "2898b2feda0f4368aa45cfd319deaa65", "kind": "transactional", "parallelism": 1, "txid": 11, "attempt": 0, "epoch": 1, "version": 2}','{"written":[],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('panes-rows',0,'{"topology": "facts", "batches": "2898b2feda0f4368aa45cfd319deaa65", "kind": "transactional", "parallelism": 1, "txid": 11, "attempt": 0, "epoch": 1, "version": 2}','{"written":[],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('sums',0,'{"topology": "facts", "batches": "2898b2feda0f4368aa45cfd319deaa65", "kind": "transactional", "parallelism": 1, "txid": 10, "attempt": 0, "epoch": 1, "version": 2}','{"written":[],"removed":[["__sunshower:slots",22],["__sunshower:node",22,0,0],22,["__sunshower:slots",21],["__sunshower:node",21,0,0],21,["__sunshower:slots",11],["__sunshower:node",11,0,0],11]}');
INSERT INTO "sunshower_marks" VALUES('totals',0,'{"topology": "facts", "batches": "2898b2feda0f4368aa45cfd319deaa65", "kind": "transactional", "parallelism": 2, "txid": 11, "attempt": 0, "epoch": 1, "version": 2}','{"written":[],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('totals',1,'{"topology": "facts", "batches": "2898b2feda0f4368aa45cfd319deaa65", "kind": "transactional", "parallelism": 2, "txid": 11, "attempt": 0, "epoch": 1, "version": 2}','{"written":[],"removed":[]}');
CREATE TABLE "totals" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "totals" VALUES('"a"',1,'[11,[14,455]]');
INSERT INTO "totals" VALUES('"b"',1,'[11,[26,845]]');
INSERT INTO "totals" VALUES('"e"',0,'[11,[26,845]]');
COMMIT;

BEGIN TRANSACTION;
CREATE TABLE nodes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, -- another one when a node is made again
    path TEXT NOT NULL UNIQUE, parent TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL,
    owner TEXT -- the session of an ephemeral node
);
INSERT INTO "nodes" VALUES(1,'/transactional','/',X'',0,NULL);
INSERT INTO "nodes" VALUES(2,'/transactional/facts','/transactional',X'',0,NULL);
INSERT INTO "nodes" VALUES(3,'/transactional/facts/coordinator','/transactional/facts',X'',0,NULL);
INSERT INTO "nodes" VALUES(4,'/transactional/facts/coordinator/incarnation','/transactional/facts/coordinator',X'3238393862326665646130663433363861613435636664333139646561613635',0,NULL);
INSERT INTO "nodes" VALUES(5,'/transactional/facts/coordinator/version','/transactional/facts/coordinator',X'31',0,NULL);
INSERT INTO "nodes" VALUES(6,'/transactional/facts/coordinator/topology','/transactional/facts/coordinator',X'22666163747322',0,NULL);
INSERT INTO "nodes" VALUES(7,'/transactional/facts/coordinator/epoch','/transactional/facts/coordinator',X'31',0,NULL);
INSERT INTO "nodes" VALUES(8,'/transactional/facts/coordinator/currattempts','/transactional/facts/coordinator',X'7B223131223A20307D',11,NULL);
INSERT INTO "nodes" VALUES(9,'/transactional/facts/coordinator/skipped','/transactional/facts/coordinator',X'7B7D',0,NULL);
INSERT INTO "nodes" VALUES(10,'/transactional/facts/coordinator/currtx','/transactional/facts/coordinator',X'3131',10,NULL);
INSERT INTO "nodes" VALUES(11,'/transactional/facts/coordinator/meta','/transactional/facts/coordinator',X'',0,NULL);
INSERT INTO "nodes" VALUES(13,'/transactional/facts/times','/transactional/facts',X'',0,NULL);
INSERT INTO "nodes" VALUES(14,'/transactional/facts/times/0','/transactional/facts/times',X'',0,NULL);
INSERT INTO "nodes" VALUES(16,'/transactional/facts/coordinator/states','/transactional/facts/coordinator',X'',0,NULL);
INSERT INTO "nodes" VALUES(17,'/transactional/facts/coordinator/states/counted','/transactional/facts/coordinator/states',X'',0,NULL);
INSERT INTO "nodes" VALUES(18,'/transactional/facts/coordinator/states/counted/0','/transactional/facts/coordinator/states/counted',X'7B2274786964223A2031312C2022617474656D7074223A20302C202265706F6368223A20317D',10,NULL);
INSERT INTO "nodes" VALUES(19,'/transactional/facts/coordinator/states/collected','/transactional/facts/coordinator/states',X'',0,NULL);
INSERT INTO "nodes" VALUES(20,'/transactional/facts/coordinator/states/collected/0','/transactional/facts/coordinator/states/collected',X'7B2274786964223A2031312C2022617474656D7074223A20302C202265706F6368223A20317D',10,NULL);
INSERT INTO "nodes" VALUES(21,'/transactional/facts/coordinator/states/panes','/transactional/facts/coordinator/states',X'',0,NULL);
INSERT INTO "nodes" VALUES(22,'/transactional/facts/coordinator/states/panes/0','/transactional/facts/coordinator/states/panes',X'7B2274786964223A2031312C2022617474656D7074223A20302C202265706F6368223A20317D',10,NULL);
INSERT INTO "nodes" VALUES(23,'/transactional/facts/coordinator/states/totals','/transactional/facts/coordinator/states',X'',0,NULL);
INSERT INTO "nodes" VALUES(24,'/transactional/facts/coordinator/states/totals/0','/transactional/facts/coordinator/states/totals',X'7B2274786964223A2031312C2022617474656D7074223A20302C202265706F6368223A20317D',10,NULL);
INSERT INTO "nodes" VALUES(25,'/transactional/facts/coordinator/states/totals/1','/transactional/facts/coordinator/states/totals',X'7B2274786964223A2031312C2022617474656D7074223A20302C202265706F6368223A20317D',10,NULL);
INSERT INTO "nodes" VALUES(26,'/transactional/facts/coordinator/states/sums','/transactional/facts/coordinator/states',X'',0,NULL);
INSERT INTO "nodes" VALUES(27,'/transactional/facts/coordinator/states/sums/0','/transactional/facts/coordinator/states/sums',X'7B2274786964223A2031302C2022617474656D7074223A20302C202265706F6368223A20317D',9,NULL);
INSERT INTO "nodes" VALUES(30,'/transactional/facts/coordinator/states/panes-rows','/transactional/facts/coordinator/states',X'',0,NULL);
INSERT INTO "nodes" VALUES(31,'/transactional/facts/coordinator/states/panes-rows/0','/transactional/facts/coordinator/states/panes-rows',X'7B2274786964223A2031312C2022617474656D7074223A20302C202265706F6368223A20317D',9,NULL);
INSERT INTO "nodes" VALUES(34,'/transactional/facts/coordinator/states/counted-rows','/transactional/facts/coordinator/states',X'',0,NULL);
INSERT INTO "nodes" VALUES(35,'/transactional/facts/coordinator/states/counted-rows/0','/transactional/facts/coordinator/states/counted-rows',X'7B2274786964223A2031312C2022617474656D7074223A20302C202265706F6368223A20317D',3,NULL);
INSERT INTO "nodes" VALUES(48,'/transactional/facts/coordinator/meta/10','/transactional/facts/coordinator/meta',X'7B2224656E646564223A2066616C73652C20226D65746164617461223A207B226669727374223A2035342C2022656E64223A2036307D7D',0,NULL);
INSERT INTO "nodes" VALUES(49,'/transactional/facts/times/0/10','/transactional/facts/times/0',X'7B2265706F6368223A20312C2022617474656D7074223A20302C20226D65746164617461223A206E756C6C2C20226174223A205B32392E352C2032362E352C2066616C73655D7D',0,NULL);
INSERT INTO "nodes" VALUES(50,'/transactional/facts/coordinator/meta/11','/transactional/facts/coordinator/meta',X'7B2224656E646564223A2066616C73652C20226D65746164617461223A207B226669727374223A2036302C2022656E64223A2036367D7D',0,NULL);
INSERT INTO "nodes" VALUES(51,'/transactional/facts/times/0/11','/transactional/facts/times/0',X'7B2265706F6368223A20312C2022617474656D7074223A20302C20226D65746164617461223A206E756C6C2C20226174223A205B33322E352C2032392E352C2066616C73655D7D',0,NULL);
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, beats INTEGER NOT NULL, timeout_s REAL NOT NULL
);
CREATE TABLE sunshower_versions (
    part TEXT PRIMARY KEY, version INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "sunshower_versions" VALUES('the tree',2);
CREATE INDEX children ON nodes (parent);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('nodes',51);
COMMIT;
