BEGIN TRANSACTION;
CREATE TABLE "collected" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "collected" VALUES('"$windows"',0,'[11,{"time":32.5,"late":0,"groups":[["a",0,[[0,[[0,5,10,15,20,25,30,35,40,45,50,55,60,65]]]]],["b",0,[[0,[[1,4,6,9,11,14,16,19,21,24,26,29,31,34,36,39,41,44,46,49,51,54,56,59,61,64]]]]],["e",0,[[0,[[2,3,7,8,12,13,17,18,22,23,27,28,32,33,37,38,42,43,47,48,52,53,57,58,62,63]]]]]],"fired":[]},{"time":29.5,"late":0,"groups":[["a",0,[[0,[[0,5,10,15,20,25,30,35,40,45,50,55]]]]],["b",0,[[0,[[1,4,6,9,11,14,16,19,21,24,26,29,31,34,36,39,41,44,46,49,51,54,56,59]]]]],["e",0,[[0,[[2,3,7,8,12,13,17,18,22,23,27,28,32,33,37,38,42,43,47,48,52,53,57,58]]]]]],"fired":[]}]');
CREATE TABLE "collected-rows" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
CREATE TABLE "counted" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "counted" VALUES('["$windows","a"]',0,'[11,{"time":null,"late":0,"groups":[["a",14,[]]],"fired":[["a",1,350]]},{"time":null,"late":0,"groups":[["a",12,[[1,[225]]]]],"fired":[]}]');
INSERT INTO "counted" VALUES('["$windows","b"]',0,'[11,{"time":null,"late":0,"groups":[["b",26,[[3,[294]]]]],"fired":[]},{"time":null,"late":0,"groups":[["b",24,[[3,[169]]]]],"fired":[]}]');
INSERT INTO "counted" VALUES('["$windows","e"]',0,'[11,{"time":null,"late":0,"groups":[["e",26,[[3,[293]]]]],"fired":[]},{"time":null,"late":0,"groups":[["e",24,[[3,[168]]]]],"fired":[]}]');
CREATE TABLE "counted-rows" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "counted-rows" VALUES('"a"',0,'[11,2,1]');
INSERT INTO "counted-rows" VALUES('"b"',0,'[9,3,2]');
INSERT INTO "counted-rows" VALUES('"e"',0,'[9,3,2]');
CREATE TABLE "panes" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "panes" VALUES('"$windows"',0,'[11,{"time":32.5,"late":0,"groups":[["a",0,[[9,[1]],[10,[2]]]],["b",0,[[9,[3]],[10,[2]]]],["e",0,[[9,[2]],[10,[2]]]]],"fired":[["a",30,2],["b",30,5],["e",30,5]]},{"time":29.5,"late":0,"groups":[["a",0,[[8,[1]],[9,[1]]]],["b",0,[[8,[2]],[9,[3]]]],["e",0,[[8,[3]],[9,[2]]]]],"fired":[["a",27,2],["b",27,4],["e",27,6]]}]');
CREATE TABLE "panes-rows" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "panes-rows" VALUES('"a"',0,'[11,10,9]');
INSERT INTO "panes-rows" VALUES('"b"',0,'[11,10,9]');
INSERT INTO "panes-rows" VALUES('"e"',0,'[11,10,9]');
CREATE TABLE "remembered" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "remembered" VALUES('"a"',1,'[11,{"<Memory>":{"numbers":{"(set)":[0,10,15,20,25,30,35,40,45,5,50,55,60,65]},"colors":{"(dict)":[[{"<Color>":"RED"},[{"<Point>":{"x":0,"y":0.0}},{"<Point>":{"x":10,"y":5.0}},{"<Point>":{"x":20,"y":10.0}},{"<Point>":{"x":30,"y":15.0}},{"<Point>":{"x":40,"y":20.0}},{"<Point>":{"x":50,"y":25.0}},{"<Point>":{"x":60,"y":30.0}}]],[{"<Color>":"BLUE"},[{"<Point>":{"x":5,"y":2.5}},{"<Point>":{"x":15,"y":7.5}},{"<Point>":{"x":25,"y":12.5}},{"<Point>":{"x":35,"y":17.5}},{"<Point>":{"x":45,"y":22.5}},{"<Point>":{"x":55,"y":27.5}},{"<Point>":{"x":65,"y":32.5}}]]]},"first":{"(datetime)":"2026-01-01T00:00:00+00:00"},"price":{"(Decimal)":"1.50"},"seen":{"(Counter)":[["0",5],["2",5],["1",4]]},"raw":{"(bytes)":"AP8="}}},{"<Memory>":{"numbers":{"(set)":[0,10,15,20,25,30,35,40,45,5,50,55]},"colors":{"(dict)":[[{"<Color>":"RED"},[{"<Point>":{"x":0,"y":0.0}},{"<Point>":{"x":10,"y":5.0}},{"<Point>":{"x":20,"y":10.0}},{"<Point>":{"x":30,"y":15.0}},{"<Point>":{"x":40,"y":20.0}},{"<Point>":{"x":50,"y":25.0}}]],[{"<Color>":"BLUE"},[{"<Point>":{"x":5,"y":2.5}},{"<Point>":{"x":15,"y":7.5}},{"<Point>":{"x":25,"y":12.5}},{"<Point>":{"x":35,"y":17.5}},{"<Point>":{"x":45,"y":22.5}},{"<Point>":{"x":55,"y":27.5}}]]]},"first":{"(datetime)":"2026-01-01T00:00:00+00:00"},"price":{"(Decimal)":"1.50"},"seen":{"(Counter)":[["0",4],["2",4],["1",4]]},"raw":{"(bytes)":"AP8="}}}]');
INSERT INTO "remembered" VALUES('"b"',1,'[11,{"<Memory>":{"numbers":{"(set)":[1,11,14,16,19,21,24,26,29,31,34,36,39,4,41,44,46,49,51,54,56,59,6,61,64,9]},"colors":{"(dict)":[[{"<Color>":"BLUE"},[{"<Point>":{"x":1,"y":0.5}},{"<Point>":{"x":9,"y":4.5}},{"<Point>":{"x":11,"y":5.5}},{"<Point>":{"x":19,"y":9.5}},{"<Point>":{"x":21,"y":10.5}},{"<Point>":{"x":29,"y":14.5}},{"<Point>":{"x":31,"y":15.5}},{"<Point>":{"x":39,"y":19.5}},{"<Point>":{"x":41,"y":20.5}},{"<Point>":{"x":49,"y":24.5}},{"<Point>":{"x":51,"y":25.5}},{"<Point>":{"x":59,"y":29.5}},{"<Point>":{"x":61,"y":30.5}}]],[{"<Color>":"RED"},[{"<Point>":{"x":4,"y":2.0}},{"<Point>":{"x":6,"y":3.0}},{"<Point>":{"x":14,"y":7.0}},{"<Point>":{"x":16,"y":8.0}},{"<Point>":{"x":24,"y":12.0}},{"<Point>":{"x":26,"y":13.0}},{"<Point>":{"x":34,"y":17.0}},{"<Point>":{"x":36,"y":18.0}},{"<Point>":{"x":44,"y":22.0}},{"<Point>":{"x":46,"y":23.0}},{"<Point>":{"x":54,"y":27.0}},{"<Point>":{"x":56,"y":28.0}},{"<Point>":{"x":64,"y":32.0}}]]]},"first":{"(datetime)":"2026-01-01T00:00:00+00:00"},"price":{"(Decimal)":"1.50"},"seen":{"(Counter)":[["1",10],["0",8],["2",8]]},"raw":{"(bytes)":"AP8="}}},{"<Memory>":{"numbers":{"(set)":[1,11,14,16,19,21,24,26,29,31,34,36,39,4,41,44,46,49,51,54,56,59,6,9]},"colors":{"(dict)":[[{"<Color>":"BLUE"},[{"<Point>":{"x":1,"y":0.5}},{"<Point>":{"x":9,"y":4.5}},{"<Point>":{"x":11,"y":5.5}},{"<Point>":{"x":19,"y":9.5}},{"<Point>":{"x":21,"y":10.5}},{"<Point>":{"x":29,"y":14.5}},{"<Point>":{"x":31,"y":15.5}},{"<Point>":{"x":39,"y":19.5}},{"<Point>":{"x":41,"y":20.5}},{"<Point>":{"x":49,"y":24.5}},{"<Point>":{"x":51,"y":25.5}},{"<Point>":{"x":59,"y":29.5}}]],[{"<Color>":"RED"},[{"<Point>":{"x":4,"y":2.0}},{"<Point>":{"x":6,"y":3.0}},{"<Point>":{"x":14,"y":7.0}},{"<Point>":{"x":16,"y":8.0}},{"<Point>":{"x":24,"y":12.0}},{"<Point>":{"x":26,"y":13.0}},{"<Point>":{"x":34,"y":17.0}},{"<Point>":{"x":36,"y":18.0}},{"<Point>":{"x":44,"y":22.0}},{"<Point>":{"x":46,"y":23.0}},{"<Point>":{"x":54,"y":27.0}},{"<Point>":{"x":56,"y":28.0}}]]]},"first":{"(datetime)":"2026-01-01T00:00:00+00:00"},"price":{"(Decimal)":"1.50"},"seen":{"(Counter)":[["1",8],["0",8],["2",8]]},"raw":{"(bytes)":"AP8="}}}]');
INSERT INTO "remembered" VALUES('"e"',0,'[11,{"<Memory>":{"numbers":{"(set)":[12,13,17,18,2,22,23,27,28,3,32,33,37,38,42,43,47,48,52,53,57,58,62,63,7,8]},"colors":{"(dict)":[[{"<Color>":"RED"},[{"<Point>":{"x":2,"y":1.0}},{"<Point>":{"x":8,"y":4.0}},{"<Point>":{"x":12,"y":6.0}},{"<Point>":{"x":18,"y":9.0}},{"<Point>":{"x":22,"y":11.0}},{"<Point>":{"x":28,"y":14.0}},{"<Point>":{"x":32,"y":16.0}},{"<Point>":{"x":38,"y":19.0}},{"<Point>":{"x":42,"y":21.0}},{"<Point>":{"x":48,"y":24.0}},{"<Point>":{"x":52,"y":26.0}},{"<Point>":{"x":58,"y":29.0}},{"<Point>":{"x":62,"y":31.0}}]],[{"<Color>":"BLUE"},[{"<Point>":{"x":3,"y":1.5}},{"<Point>":{"x":7,"y":3.5}},{"<Point>":{"x":13,"y":6.5}},{"<Point>":{"x":17,"y":8.5}},{"<Point>":{"x":23,"y":11.5}},{"<Point>":{"x":27,"y":13.5}},{"<Point>":{"x":33,"y":16.5}},{"<Point>":{"x":37,"y":18.5}},{"<Point>":{"x":43,"y":21.5}},{"<Point>":{"x":47,"y":23.5}},{"<Point>":{"x":53,"y":26.5}},{"<Point>":{"x":57,"y":28.5}},{"<Point>":{"x":63,"y":31.5}}]]]},"first":{"(datetime)":"2026-01-01T00:00:00+00:00"},"price":{"(Decimal)":"1.50"},"seen":{"(Counter)":[["2",9],["0",9],["1",8]]},"raw":{"(bytes)":"AP8="}}},{"<Memory>":{"numbers":{"(set)":[12,13,17,18,2,22,23,27,28,3,32,33,37,38,42,43,47,48,52,53,57,58,7,8]},"colors":{"(dict)":[[{"<Color>":"RED"},[{"<Point>":{"x":2,"y":1.0}},{"<Point>":{"x":8,"y":4.0}},{"<Point>":{"x":12,"y":6.0}},{"<Point>":{"x":18,"y":9.0}},{"<Point>":{"x":22,"y":11.0}},{"<Point>":{"x":28,"y":14.0}},{"<Point>":{"x":32,"y":16.0}},{"<Point>":{"x":38,"y":19.0}},{"<Point>":{"x":42,"y":21.0}},{"<Point>":{"x":48,"y":24.0}},{"<Point>":{"x":52,"y":26.0}},{"<Point>":{"x":58,"y":29.0}}]],[{"<Color>":"BLUE"},[{"<Point>":{"x":3,"y":1.5}},{"<Point>":{"x":7,"y":3.5}},{"<Point>":{"x":13,"y":6.5}},{"<Point>":{"x":17,"y":8.5}},{"<Point>":{"x":23,"y":11.5}},{"<Point>":{"x":27,"y":13.5}},{"<Point>":{"x":33,"y":16.5}},{"<Point>":{"x":37,"y":18.5}},{"<Point>":{"x":43,"y":21.5}},{"<Point>":{"x":47,"y":23.5}},{"<Point>":{"x":53,"y":26.5}},{"<Point>":{"x":57,"y":28.5}}]]]},"first":{"(datetime)":"2026-01-01T00:00:00+00:00"},"price":{"(Decimal)":"1.50"},"seen":{"(Counter)":[["2",8],["0",8],["1",8]]},"raw":{"(bytes)":"AP8="}}}]');
CREATE TABLE "sums" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "sums" VALUES('12',0,'[11,null,330]');
INSERT INTO "sums" VALUES('14',0,'[11,455,null]');
INSERT INTO "sums" VALUES('24',0,'[11,null,1440]');
INSERT INTO "sums" VALUES('26',0,'[11,1690,null]');
INSERT INTO "sums" VALUES('["__sunshower:node",12,0,0]',0,'[11,null,[[330],null,null,null,null,null,null,null,null,null,null,null,null,null,null,null]]');
INSERT INTO "sums" VALUES('["__sunshower:node",14,0,0]',0,'[11,[[455],null,null,null,null,null,null,null,null,null,null,null,null,null,null,null],null]');
INSERT INTO "sums" VALUES('["__sunshower:node",24,0,0]',0,'[11,null,[[720],[720],null,null,null,null,null,null,null,null,null,null,null,null,null,null]]');
INSERT INTO "sums" VALUES('["__sunshower:node",26,0,0]',0,'[11,[[845],[845],null,null,null,null,null,null,null,null,null,null,null,null,null,null],null]');
INSERT INTO "sums" VALUES('["__sunshower:origin",["totals","a"]]',0,'[11,[11,[[14,0]],[12]],[10,[[12,0]],[11]]]');
INSERT INTO "sums" VALUES('["__sunshower:origin",["totals","b"]]',0,'[11,[11,[[26,1]],[24]],[10,[[24,1]],[21]]]');
INSERT INTO "sums" VALUES('["__sunshower:origin",["totals","e"]]',0,'[11,[11,[[26,0]],[24]],[10,[[24,0]],[22]]]');
INSERT INTO "sums" VALUES('["__sunshower:slots",12]',0,'[11,null,[1,-1,1]]');
INSERT INTO "sums" VALUES('["__sunshower:slots",14]',0,'[11,[1,-1,1],null]');
INSERT INTO "sums" VALUES('["__sunshower:slots",24]',0,'[11,null,[2,-1,2]]');
INSERT INTO "sums" VALUES('["__sunshower:slots",26]',0,'[11,[2,-1,2],null]');
CREATE TABLE sunshower_marks (
    state TEXT, task INTEGER, word TEXT NOT NULL, journal TEXT NOT NULL, PRIMARY KEY (state, task)
) WITHOUT ROWID;
INSERT INTO "sunshower_marks" VALUES('collected',0,'{"topology": "facts", "batches": "470268e553244756af100e4990969eee", "kind": "opaque", "parallelism": 1, "txid": 11, "attempt": 0, "epoch": 1, "version": 2}','{"written":["$windows"],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('counted',0,'{"topology": "facts", "batches": "470268e553244756af100e4990969eee", "kind": "opaque", "parallelism": 1, "txid": 11, "attempt": 0, "epoch": 1, "version": 2}','{"written":[["$windows","a"],["$windows","b"],["$windows","e"]],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('counted-rows',0,'{"topology": "facts", "batches": "470268e553244756af100e4990969eee", "kind": "opaque", "parallelism": 1, "txid": 11, "attempt": 0, "epoch": 1, "version": 2}','{"written":["a"],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('panes',0,'{"topology": "facts", "batches": "470268e553244756af100e4990969eee", "kind": "opaque", "parallelism": 1, "txid": 11, "attempt": 0, "epoch": 1, "version": 2}','{"written":["$windows"],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('panes-rows',0,'{"topology": "facts", "batches": "470268e553244756af100e4990969eee", "kind": "opaque", "parallelism": 1, "txid": 11, "attempt": 0, "epoch": 1, "version": 2}','{"written":["a","b","e"],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('remembered',0,'{"topology": "facts", "batches": "470268e553244756af100e4990969eee", "kind": "opaque", "parallelism": 2, "txid": 11, "attempt": 0, "epoch": 1, "version": 2}','{"written":["e"],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('remembered',1,'{"topology": "facts", "batches": "470268e553244756af100e4990969eee", "kind": "opaque", "parallelism": 2, "txid": 11, "attempt": 0, "epoch": 1, "version": 2}','{"written":["a","b"],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('sums',0,'{"topology": "facts", "batches": "470268e553244756af100e4990969eee", "kind": "opaque", "parallelism": 1, "txid": 11, "attempt": 0, "epoch": 1, "version": 2}','{"written":[["__sunshower:origin",["totals","e"]],["__sunshower:origin",["totals","a"]],["__sunshower:origin",["totals","b"]],["__sunshower:node",26,0,0],["__sunshower:slots",26],26,["__sunshower:slots",24],["__sunshower:node",24,0,0],24,["__sunshower:node",14,0,0],["__sunshower:slots",14],14,["__sunshower:slots",12],["__sunshower:node",12,0,0],12],"removed":[["__sunshower:slots",24],["__sunshower:node",24,0,0],24,["__sunshower:slots",12],["__sunshower:node",12,0,0],12]}');
INSERT INTO "sunshower_marks" VALUES('totals',0,'{"topology": "facts", "batches": "470268e553244756af100e4990969eee", "kind": "opaque", "parallelism": 2, "txid": 11, "attempt": 0, "epoch": 1, "version": 2}','{"written":["e"],"removed":[]}');
INSERT INTO "sunshower_marks" VALUES('totals',1,'{"topology": "facts", "batches": "470268e553244756af100e4990969eee", "kind": "opaque", "parallelism": 2, "txid": 11, "attempt": 0, "epoch": 1, "version": 2}','{"written":["a","b"],"removed":[]}');
CREATE TABLE "totals" (
    key TEXT, task INTEGER, value TEXT NOT NULL, PRIMARY KEY (key, task)
) WITHOUT ROWID;
INSERT INTO "totals" VALUES('"a"',1,'[11,[14,455],[12,330]]');
INSERT INTO "totals" VALUES('"b"',1,'[11,[26,845],[24,720]]');
INSERT INTO "totals" VALUES('"e"',0,'[11,[26,845],[24,720]]');
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
INSERT INTO "nodes" VALUES(4,'/transactional/facts/coordinator/incarnation','/transactional/facts/coordinator',X'3437303236386535353332343437353661663130306534393930393639656565',0,NULL);
INSERT INTO "nodes" VALUES(5,'/transactional/facts/coordinator/version','/transactional/facts/coordinator',X'31',0,NULL);
INSERT INTO "nodes" VALUES(6,'/transactional/facts/coordinator/topology','/transactional/facts/coordinator',X'22666163747322',0,NULL);
INSERT INTO "nodes" VALUES(7,'/transactional/facts/coordinator/epoch','/transactional/facts/coordinator',X'31',0,NULL);
INSERT INTO "nodes" VALUES(8,'/transactional/facts/coordinator/currattempts','/transactional/facts/coordinator',X'7B223131223A20307D',11,NULL);
INSERT INTO "nodes" VALUES(9,'/transactional/facts/coordinator/skipped','/transactional/facts/coordinator',X'7B7D',0,NULL);
INSERT INTO "nodes" VALUES(10,'/transactional/facts/coordinator/currtx','/transactional/facts/coordinator',X'3132',11,NULL);
INSERT INTO "nodes" VALUES(11,'/transactional/facts/coordinator/meta','/transactional/facts/coordinator',X'',0,NULL);
INSERT INTO "nodes" VALUES(13,'/transactional/facts/times','/transactional/facts',X'',0,NULL);
INSERT INTO "nodes" VALUES(14,'/transactional/facts/times/0','/transactional/facts/times',X'',0,NULL);
INSERT INTO "nodes" VALUES(16,'/transactional/facts/coordinator/states','/transactional/facts/coordinator',X'',0,NULL);
INSERT INTO "nodes" VALUES(17,'/transactional/facts/coordinator/states/collected','/transactional/facts/coordinator/states',X'',0,NULL);
INSERT INTO "nodes" VALUES(18,'/transactional/facts/coordinator/states/collected/0','/transactional/facts/coordinator/states/collected',X'7B2274786964223A2031312C2022617474656D7074223A20302C202265706F6368223A20317D',10,NULL);
INSERT INTO "nodes" VALUES(19,'/transactional/facts/coordinator/states/counted','/transactional/facts/coordinator/states',X'',0,NULL);
INSERT INTO "nodes" VALUES(20,'/transactional/facts/coordinator/states/counted/0','/transactional/facts/coordinator/states/counted',X'7B2274786964223A2031312C2022617474656D7074223A20302C202265706F6368223A20317D',10,NULL);
INSERT INTO "nodes" VALUES(21,'/transactional/facts/coordinator/states/panes','/transactional/facts/coordinator/states',X'',0,NULL);
INSERT INTO "nodes" VALUES(22,'/transactional/facts/coordinator/states/panes/0','/transactional/facts/coordinator/states/panes',X'7B2274786964223A2031312C2022617474656D7074223A20302C202265706F6368223A20317D',10,NULL);
INSERT INTO "nodes" VALUES(23,'/transactional/facts/coordinator/states/totals','/transactional/facts/coordinator/states',X'',0,NULL);
INSERT INTO "nodes" VALUES(24,'/transactional/facts/coordinator/states/totals/0','/transactional/facts/coordinator/states/totals',X'7B2274786964223A2031312C2022617474656D7074223A20302C202265706F6368223A20317D',10,NULL);
INSERT INTO "nodes" VALUES(25,'/transactional/facts/coordinator/states/remembered','/transactional/facts/coordinator/states',X'',0,NULL);
INSERT INTO "nodes" VALUES(26,'/transactional/facts/coordinator/states/remembered/0','/transactional/facts/coordinator/states/remembered',X'7B2274786964223A2031312C2022617474656D7074223A20302C202265706F6368223A20317D',10,NULL);
INSERT INTO "nodes" VALUES(27,'/transactional/facts/coordinator/states/totals/1','/transactional/facts/coordinator/states/totals',X'7B2274786964223A2031312C2022617474656D7074223A20302C202265706F6368223A20317D',10,NULL);
INSERT INTO "nodes" VALUES(28,'/transactional/facts/coordinator/states/remembered/1','/transactional/facts/coordinator/states/remembered',X'7B2274786964223A2031312C2022617474656D7074223A20302C202265706F6368223A20317D',10,NULL);
INSERT INTO "nodes" VALUES(29,'/transactional/facts/coordinator/states/sums','/transactional/facts/coordinator/states',X'',0,NULL);
INSERT INTO "nodes" VALUES(30,'/transactional/facts/coordinator/states/sums/0','/transactional/facts/coordinator/states/sums',X'7B2274786964223A2031312C2022617474656D7074223A20302C202265706F6368223A20317D',10,NULL);
INSERT INTO "nodes" VALUES(33,'/transactional/facts/coordinator/states/panes-rows','/transactional/facts/coordinator/states',X'',0,NULL);
INSERT INTO "nodes" VALUES(34,'/transactional/facts/coordinator/states/panes-rows/0','/transactional/facts/coordinator/states/panes-rows',X'7B2274786964223A2031312C2022617474656D7074223A20302C202265706F6368223A20317D',9,NULL);
INSERT INTO "nodes" VALUES(37,'/transactional/facts/coordinator/states/counted-rows','/transactional/facts/coordinator/states',X'',0,NULL);
INSERT INTO "nodes" VALUES(38,'/transactional/facts/coordinator/states/counted-rows/0','/transactional/facts/coordinator/states/counted-rows',X'7B2274786964223A2031312C2022617474656D7074223A20302C202265706F6368223A20317D',3,NULL);
INSERT INTO "nodes" VALUES(53,'/transactional/facts/coordinator/meta/11','/transactional/facts/coordinator/meta',X'7B2224656E646564223A2066616C73652C20226D65746164617461223A207B226669727374223A2036302C2022656E64223A2036367D7D',0,NULL);
INSERT INTO "nodes" VALUES(54,'/transactional/facts/times/0/11','/transactional/facts/times/0',X'7B2265706F6368223A20312C2022617474656D7074223A20302C20226D65746164617461223A206E756C6C2C20226174223A205B33322E352C2032392E352C2066616C73655D7D',0,NULL);
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, beats INTEGER NOT NULL, timeout_s REAL NOT NULL
);
CREATE TABLE sunshower_versions (
    part TEXT PRIMARY KEY, version INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "sunshower_versions" VALUES('the tree',2);
CREATE INDEX children ON nodes (parent);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('nodes',54);
COMMIT;
