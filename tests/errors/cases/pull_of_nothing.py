from penstock.pull import pull

pull()
