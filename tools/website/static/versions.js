const cirandaVersions = {};
