BEGIN TRANSACTION;
CREATE TABLE "counted" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "counted" VALUES('["__sunshower:time"]',0,'-Infinity');
INSERT INTO "counted" VALUES('["rows","a"]',0,'[7,{"(dict)":[[1,[24.0]],[2,[12.0]]]}]');
INSERT INTO "counted" VALUES('["rows","b"]',0,'[7,{"(dict)":[[1,[27.0]],[2,[13.0]]]}]');
INSERT INTO "counted" VALUES('{"dict":[["sunshower","about"]]}',0,'{"version":1,"records":{"Click":["user","at"]}}');
CREATE TABLE "listed" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "listed" VALUES('["__sunshower:time"]',0,'-Infinity');
INSERT INTO "listed" VALUES('["rows","a"]',0,'[7,{"(dict)":[[1,[["a",6.0],["a",8.0],["a",10.0]]],[2,[["a",12.0]]]]}]');
INSERT INTO "listed" VALUES('["rows","b"]',0,'[7,{"(dict)":[[1,[["b",7.0],["b",9.0],["b",11.0]]],[2,[["b",13.0]]]]}]');
INSERT INTO "listed" VALUES('{"dict":[["sunshower","about"]]}',0,'{"version":1,"records":{"Click":["user","at"]}}');
CREATE TABLE sunshower_marks (
    state TEXT, task INTEGER, word TEXT NOT NULL, journal TEXT NOT NULL, PRIMARY KEY (state, task)
) WITHOUT ROWID;
INSERT INTO "sunshower_marks" VALUES('counted',0,'{"topology": "clicks", "batches": "", "kind": "non-transactional", "parallelism": 1, "txid": 6, "attempt": 0, "epoch": 1, "version": 2, "spread": "group"}','{"written":[],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('listed',0,'{"topology": "clicks", "batches": "", "kind": "non-transactional", "parallelism": 1, "txid": 6, "attempt": 0, "epoch": 1, "version": 2, "spread": "group"}','{"written":[],"removed":[]}');
COMMIT;
