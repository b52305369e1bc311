/* Follows a link to a section that has moved: STREAMS.html#joins is JOINS.html#joins. The page has a
   link to each of these sections. */
const section = decodeURIComponent(location.hash.slice(1));
if (section && !document.getElementById(section)) {
  const link = document.querySelector(`article a[href$="#${CSS.escape(section)}"]`);
  if (link) location.replace(link.href);
}
