"""A run as a web page: `document` is the data, `report/page/` shows it, `file` and `server` deliver both."""
